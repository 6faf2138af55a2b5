"""A seat is refilled as soon as it is empty.

That is continuous batching, and it is better: stage 2 does it. Static batching waits until *all* requests of a batch
have ended. Fill only an empty batch here, so that there is something to compare with.
"""

from __future__ import annotations

from stage1.records import CachedRequests, SchedulerOutput
from stage1.scheduler import StaticScheduler as Reference


class StaticScheduler(Reference):
    """Fills at every step."""

    def schedule(self) -> SchedulerOutput:
        """Everything but one thing is right."""
        self._waiting.extend(self._lifecycle.released())
        if len(self._batch) < self._max_num_seqs:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(step=self._step, new=[], cached=CachedRequests(), num_scheduled={})
        budget = self._token_budget
        for req in self._batch:
            num_tokens = req.num_tokens_to_compute
            if not 0 < num_tokens <= budget:
                continue
            budget -= num_tokens
            self._put(plan, req, num_tokens)
        self._scheduled_tokens = self._token_budget - budget
        return self._lifecycle.plan_made(plan)
