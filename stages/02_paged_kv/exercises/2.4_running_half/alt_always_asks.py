"""Asks for room every time, and keeps the budget in the plan itself."""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Status
from stage2.scheduler import ContinuousScheduler as Reference


class ContinuousScheduler(Reference):
    """Another shape of the same method."""

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """Nothing is carried along but the plan."""
        whole = budget
        for req in list(self._running):
            left = whole - plan.total_tokens
            gap = req.num_tokens_to_compute
            if left <= 0 or gap <= 0 or req.status is not Status.RUNNING:
                continue
            tokens = self._share(gap, left)
            if not self._make_room(req, req.num_computed_tokens + tokens, plan):
                continue
            plan.cached.req_ids.append(req.req_id)
            plan.cached.num_computed.append(req.num_computed_tokens)
            plan.num_scheduled[req.req_id] = tokens
            req.num_computed_tokens += tokens
            req.num_in_flight += int(tokens == gap)
        return whole - plan.total_tokens
