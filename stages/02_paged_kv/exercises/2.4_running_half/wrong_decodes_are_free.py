"""Tokens of running requests are not taken off the budget.

The budget is of the step, not of its prompts: every token that is computed counts, whoever it belongs to. Otherwise
the waiting half fills a step that is full already.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Status
from stage2.scheduler import ContinuousScheduler as Reference


class ContinuousScheduler(Reference):
    """Only newcomers pay."""

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """Everything but one thing is right."""
        for req in tuple(self._running):
            gap, start = req.num_tokens_to_compute, req.num_computed_tokens
            if budget <= 0:
                break
            if gap <= 0 or req.status is not Status.RUNNING:
                continue
            num_tokens = self._share(gap, budget)
            if not self._make_room(req, start + num_tokens, plan):
                continue
            plan.cached.req_ids.append(req.req_id)
            plan.cached.num_computed.append(start)
            plan.num_scheduled[req.req_id] = num_tokens
            req.num_computed_tokens = start + num_tokens
            if num_tokens == gap:
                req.num_in_flight += 1
        return budget
