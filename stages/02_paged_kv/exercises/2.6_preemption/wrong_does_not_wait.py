"""The victim is sent back while a token of it is in flight.

The step that samples the token has been started, and its result will come. Whoever starts over before that computes
without the token, and gets it a second time. Wait for it: the request gets no more, and goes when its result has been
read.
"""

from __future__ import annotations

from stage1.records import SchedulerOutput
from stage1.request import Request, Status
from stage2.preemption import Preemption as Reference


class Preemption(Reference):
    """Does not wait for results."""

    def make_room(self, running: list[Request], plan: SchedulerOutput) -> bool:
        """The queue's choice."""
        victim = self._waiting.worst(running)
        victim.status = Status.PREEMPTED
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
        victim.num_computed_tokens = 0
        victim.num_in_flight = 0
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting.put_back(victim)
        plan.preempted.append(victim.req_id)
