"""Who gives way when the blocks run out: preemption by recompute.

Owns the way back from running to waiting. Does not choose when: the scheduler asks when a running request gets no
block. The victim gives all its blocks back at once and starts over later, its output then a part of what it computes
first; nothing that was sampled is lost, and no token is sampled twice.

    running a b c     a needs a block, none is free, c came last
    → running a b     c's blocks are free, c waits in front of all others with 0 computed tokens

vLLM: ``v1/core/sched/scheduler.py`` (the loop around ``allocate_slots``).
"""

from __future__ import annotations

from stage1.interfaces import KVCacheManager
from stage1.records import SchedulerOutput
from stage1.request import Request, Status
from stage2.waiting import WaitingQueue


class Preemption:
    """Makes room for running requests by sending others back to the queue."""

    def __init__(self, kv: KVCacheManager, waiting: WaitingQueue) -> None:
        self.num_preemptions = 0
        self.leaving: Request | None = None  # a victim whose result is still on its way
        self._kv = kv
        self._waiting = waiting

    def make_room(self, running: list[Request], plan: SchedulerOutput) -> bool:
        """Send the queue's choice of victim from ``running`` back, perhaps the one that needs the room.

        ``False`` = a victim is chosen and has sampled a token in a step that has not returned: it gets no more, and its
        blocks come when that token is known.
        """
        victim = self._waiting.worst(running)
        victim.status = Status.PREEMPTED
        if victim.num_in_flight > int(victim.req_id in plan.num_scheduled):  # one may be this plan's own
            self.leaving = victim
            return False
        self._send_back(victim, running, plan)
        return True

    def complete(self, running: list[Request], plan: SchedulerOutput) -> None:
        """Send back who is leaving, if all its results have come. Called first in every step."""
        victim = self.leaving
        if victim is None or (victim.num_in_flight and not victim.status.is_finished):
            return
        self.leaving = None
        if not victim.status.is_finished:
            self._send_back(victim, running, plan)

    def _send_back(self, victim: Request, running: list[Request], plan: SchedulerOutput) -> None:
        """Out of this plan, out of the cache, and back to the queue with nothing computed."""
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
