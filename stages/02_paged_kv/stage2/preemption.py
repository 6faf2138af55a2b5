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
        self._kv = kv
        self._waiting = waiting

    def make_room(self, running: list[Request], plan: SchedulerOutput) -> int:
        """Send the queue's choice of victim from ``running`` back; returns the tokens that leave ``plan`` with it.

        The victim may be the very request that needs the room.
        """
        victim = self._waiting.worst(running)
        num_tokens = _unplan(victim, plan)
        running.remove(victim)
        self._kv.free(victim)
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        victim.status = Status.PREEMPTED
        self.num_preemptions += 1
        self._waiting.put_back(victim)
        plan.preempted.append(victim.req_id)
        return num_tokens


def _unplan(victim: Request, plan: SchedulerOutput) -> int:
    """Take ``victim`` out of this step's plan, if it is in it; returns its tokens."""
    num_tokens = plan.num_scheduled.pop(victim.req_id, 0)
    if num_tokens:
        place = plan.cached.req_ids.index(victim.req_id)
        del plan.cached.req_ids[place], plan.cached.num_computed[place]
        plan.cached.new_block_ids.pop(victim.req_id, None)
        if victim.num_computed_tokens == victim.num_tokens:
            victim.num_in_flight -= 1
    return num_tokens
