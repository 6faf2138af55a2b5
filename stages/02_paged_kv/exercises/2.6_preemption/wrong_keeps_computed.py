"""The victim keeps its number of computed tokens.

Its keys and values went back with its blocks, so nothing of it is computed any more: not the prompt, and not the
output, which it has to compute again as if it were a longer prompt. It does not go on where it was.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Request, Status
from stage2.preemption import Preemption as Reference


class Preemption(Reference):
    """Remembers how far it had come."""

    def make_room(self, running: list[Request], plan: SchedulerOutput) -> bool:
        """The queue's choice."""
        victim = self._waiting.worst(running)
        victim.status = Status.PREEMPTED
        if victim.num_in_flight > int(victim.req_id in plan.num_scheduled):
            self.leaving = victim
            return False
        self._send_back(victim, running, plan)
        return True

    def _send_back(self, victim: Request, running: list[Request], plan: SchedulerOutput) -> None:
        """Everything but one thing is right."""
        if plan.num_scheduled.pop(victim.req_id, None) is not None:
            place = plan.cached.req_ids.index(victim.req_id)
            del plan.cached.req_ids[place], plan.cached.num_computed[place]
            plan.cached.new_block_ids.pop(victim.req_id, None)
        running.remove(victim)
        self._kv.free(victim)
        victim.num_in_flight = 0
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting.put_back(victim)
        plan.preempted.append(victim.req_id)
