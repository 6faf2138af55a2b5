"""Counts the free seats first, and keeps what is left of the budget in the plan itself."""

from __future__ import annotations

from stage1.records import CachedRequests, SchedulerOutput
from stage1.request import Status
from stage1.scheduler import StaticScheduler as Reference


class StaticScheduler(Reference):
    """Another shape of the same two methods."""

    def schedule(self) -> SchedulerOutput:
        """Fill, then plan."""
        self._waiting.extend(self._lifecycle.released())
        if len(self._batch) == 0:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(self._step, [], CachedRequests(), {})
        for req in self._batch:
            gap = req.num_tokens_to_compute
            if gap > 0 and plan.total_tokens + gap <= self._token_budget:
                self._put(plan, req, gap)
        self._scheduled_tokens = plan.total_tokens
        return self._lifecycle.plan_made(plan)

    def _fill_batch(self) -> None:
        """As many as there are seats; the first without a block ends it."""
        for _ in range(min(self._max_num_seqs, len(self._waiting))):
            first = self._waiting[0]
            blocks = self._kv.allocate_slots(first, first.num_prompt_tokens)
            if blocks is None:
                return
            self._blocks_to_send[first.req_id] = blocks
            first.status = Status.RUNNING
            self._batch.append(self._waiting.popleft())
