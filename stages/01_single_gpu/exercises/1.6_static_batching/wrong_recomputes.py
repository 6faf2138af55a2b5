"""Every step computes all tokens of a request again.

The keys and values of earlier tokens are in the cache. A step computes only the gap between the tokens that are known
and those that are computed: ``num_tokens_to_compute``. With ``num_tokens`` each step costs as much as the whole
prompt.
"""

from __future__ import annotations

from stage1.records import CachedRequests, SchedulerOutput
from stage1.scheduler import StaticScheduler as Reference


class StaticScheduler(Reference):
    """Has no cache in mind."""

    def schedule(self) -> SchedulerOutput:
        """Everything but one thing is right."""
        self._waiting.extend(self._lifecycle.released())
        if not self._batch:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(step=self._step, new=[], cached=CachedRequests(), num_scheduled={})
        budget = self._token_budget
        for req in self._batch:
            num_tokens = req.num_tokens
            if not 0 < num_tokens <= budget:
                continue
            budget -= num_tokens
            self._put(plan, req, num_tokens)
        self._scheduled_tokens = self._token_budget - budget
        return self._lifecycle.plan_made(plan)
