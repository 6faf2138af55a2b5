"""Every request in the plan is taken to sample a token.

Only whoever closes its gap does: after a piece of a prompt the next token is known already, it stands in the prompt.
A token that was counted as in flight and never comes makes the gap too large by one.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Status
from stage2.scheduler import ContinuousScheduler as Reference


class ContinuousScheduler(Reference):
    """Counts a token in flight for each piece."""

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
            req.num_in_flight += 1
            budget -= num_tokens
        return budget
