"""A gap that does not fit into the budget waits for a step in which it does.

The rest of a long prompt never fits, so its request sits on its seat and its blocks and never gets a token. Let
`self._share` say how much of the gap this step computes; the rest comes later.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Status
from stage2.scheduler import ContinuousScheduler as Reference


class ContinuousScheduler(Reference):
    """Takes gaps whole or not at all."""

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """Everything but one thing is right."""
        for req in tuple(self._running):
            gap, start = req.num_tokens_to_compute, req.num_computed_tokens
            if budget <= 0:
                break
            if gap <= 0 or req.status is not Status.RUNNING:
                continue
            if gap > budget:
                continue
            num_tokens = gap
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
