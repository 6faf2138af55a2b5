"""Nobody asks for a block after admission.

A request grows by a token a step, and every `block_size` tokens it needs another block. Without one its keys and
values go somewhere else. Ask `self._make_room` wherever the tokens go beyond the last block.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Status
from stage2.scheduler import ContinuousScheduler as Reference


class ContinuousScheduler(Reference):
    """Blocks come at admission, and never again."""

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """Everything but one thing is right."""
        for req in tuple(self._running):
            gap, start = req.num_tokens_to_compute, req.num_computed_tokens
            if budget <= 0:
                break
            if gap <= 0 or req.status is not Status.RUNNING:
                continue
            num_tokens = self._share(gap, budget)
            plan.cached.req_ids.append(req.req_id)
            plan.cached.num_computed.append(start)
            plan.num_scheduled[req.req_id] = num_tokens
            req.num_computed_tokens = start + num_tokens
            if num_tokens == gap:
                req.num_in_flight += 1
            budget -= num_tokens
        return budget
