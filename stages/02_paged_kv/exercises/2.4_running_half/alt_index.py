"""Walks by index over the list itself, which only ever gets shorter behind the place where it stands."""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Request
from stage2.scheduler import ContinuousScheduler as Reference


class ContinuousScheduler(Reference):
    """A while loop."""

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """The last admitted gives way, so whoever stands before the index stays."""
        index = 0
        while budget and index < len(self._running):
            req = self._running[index]
            tokens = self._tokens_of(req, plan, budget)
            if tokens:
                plan.cached.req_ids += [req.req_id]
                plan.cached.num_computed += [req.num_computed_tokens]
                plan.num_scheduled[req.req_id] = tokens
                if req.num_computed_tokens + tokens == req.num_tokens + req.num_in_flight:
                    req.num_in_flight += 1
                req.num_computed_tokens += tokens
                budget -= tokens
            index += 1
        return budget

    def _tokens_of(self, req: Request, plan: SchedulerOutput, budget: int) -> int:
        """0 where there is nothing to compute, or no room for it."""
        gap = req.num_tokens_to_compute
        tokens = self._share(gap, budget) if gap > 0 else 0
        return tokens if tokens and self._make_room(req, req.num_computed_tokens + tokens, plan) else 0
