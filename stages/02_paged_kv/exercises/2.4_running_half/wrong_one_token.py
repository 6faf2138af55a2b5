"""Whoever runs gets one token a step.

A running request may still have most of its prompt to compute. There are no phases: take its gap, whatever its size,
as far as the budget goes. With one token a step, a prompt of 1,000 would take 1,000 steps until its first token.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Status
from stage2.scheduler import ContinuousScheduler as Reference


class ContinuousScheduler(Reference):
    """Running is taken for decoding."""

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """Everything but one thing is right."""
        for req in tuple(self._running):
            gap, start = req.num_tokens_to_compute, req.num_computed_tokens
            if budget <= 0:
                break
            if gap <= 0 or req.status is not Status.RUNNING:
                continue
            num_tokens = 1
            if not self._make_room(req, start + num_tokens, plan):
                continue
            plan.cached.req_ids.append(req.req_id)
            plan.cached.num_computed.append(start)
            plan.num_scheduled[req.req_id] = num_tokens
            req.num_computed_tokens = start + num_tokens
            if num_tokens == gap:
                req.num_in_flight += 1
            budget -= num_tokens
        return budget
