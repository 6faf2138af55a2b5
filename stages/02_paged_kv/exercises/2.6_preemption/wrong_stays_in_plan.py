"""The victim stays in the plan of this step.

A victim may already be in the plan that is being made, if it stands before the one that needs its blocks. It must
leave it: its blocks are about to be written by somebody else, and the runner has been told to forget it.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Request, Status
from stage2.preemption import Preemption as Reference


class Preemption(Reference):
    """What is planned is planned."""

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
        running.remove(victim)
        self._kv.free(victim)
        victim.num_computed_tokens = 0
        victim.num_in_flight = 0
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting.put_back(victim)
        plan.preempted.append(victim.req_id)
