"""The token budget is not asked.

One step computes at most the budget's number of tokens, over all requests together. A prompt that no longer fits is
left out of this step and comes in the next one; otherwise a few long prompts make one endless step, and every request
waits for it.
"""

from __future__ import annotations

from stage1.records import CachedRequests, SchedulerOutput
from stage1.scheduler import StaticScheduler as Reference


class StaticScheduler(Reference):
    """Takes every gap."""

    def schedule(self) -> SchedulerOutput:
        """Everything but one thing is right."""
        self._waiting.extend(self._lifecycle.released())
        if not self._batch:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(step=self._step, new=[], cached=CachedRequests(), num_scheduled={})
        budget = self._token_budget
        for req in self._batch:
            num_tokens = req.num_tokens_to_compute
            if num_tokens == 0:
                continue
            budget -= num_tokens
            self._put(plan, req, num_tokens)
        self._scheduled_tokens = self._token_budget - budget
        return self._lifecycle.plan_made(plan)
