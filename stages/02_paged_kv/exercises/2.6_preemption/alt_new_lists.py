"""Writes the contents of the plan's lists anew, and asks first what is in flight."""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Request, Status
from stage2.preemption import Preemption as Reference


class Preemption(Reference):
    """Another shape of the same two methods."""

    def make_room(self, running: list[Request], plan: SchedulerOutput) -> bool:
        """In this plan and in flight only there: it may go."""
        victim = self._waiting.worst(running)
        is_planned = victim.req_id in plan.num_scheduled
        may_go = victim.num_in_flight == 0 or (is_planned and victim.num_in_flight == 1)
        victim.status = Status.PREEMPTED
        if may_go:
            self._send_back(victim, running, plan)
        else:
            self.leaving = victim
        return may_go

    def _send_back(self, victim: Request, running: list[Request], plan: SchedulerOutput) -> None:
        """The rest of each list."""
        name, cached = victim.req_id, plan.cached
        others = [i for i, req_id in enumerate(cached.req_ids) if req_id != name]
        cached.num_computed[:] = [cached.num_computed[i] for i in others]
        cached.req_ids[:] = [cached.req_ids[i] for i in others]
        cached.new_block_ids.pop(name, None)
        plan.num_scheduled.pop(name, None)
        plan.preempted.append(name)
        del running[next(i for i, req in enumerate(running) if req is victim)]
        victim.num_computed_tokens, victim.num_in_flight = 0, 0
        for counter in (self, victim):
            counter.num_preemptions += 1
        self._waiting.put_back(victim)
        self._kv.free(victim)
