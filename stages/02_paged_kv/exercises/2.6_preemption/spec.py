"""Preemption in the plainest words: build everything anew, without the victim."""

from __future__ import annotations

from stage1.interfaces import KVCacheManager
from stage1.records import SchedulerOutput
from stage1.request import Request, Status
from stage2.waiting import WaitingQueue


class PlainPreemption:
    """Says what ``Preemption`` must do."""

    def __init__(self, kv: KVCacheManager, waiting: WaitingQueue) -> None:
        self.num_preemptions = 0
        self.leaving: Request | None = None
        self.kv = kv
        self.waiting = waiting

    def make_room(self, running: list[Request], plan: SchedulerOutput) -> bool:
        """The queue's choice goes back, or waits for its token."""
        victim = self.waiting.worst(running)
        victim.status = Status.PREEMPTED
        in_flight = victim.num_in_flight
        if victim.req_id in plan.num_scheduled and in_flight:
            in_flight -= 1  # that one belongs to this plan, and will not be computed
        if in_flight:
            self.leaving = victim
            return False
        self.send_back(victim, running, plan)
        return True

    def complete(self, running: list[Request], plan: SchedulerOutput) -> None:
        """Who is leaving goes when nothing of it is in flight."""
        victim, self.leaving = self.leaving, None
        if victim is None or victim.status.is_finished:
            return
        if victim.num_in_flight:
            self.leaving = victim
        else:
            self.send_back(victim, running, plan)

    def send_back(self, victim: Request, running: list[Request], plan: SchedulerOutput) -> None:
        """Every list and every dict, without the victim."""
        name = victim.req_id
        pairs = [(i, n) for i, n in zip(plan.cached.req_ids, plan.cached.num_computed, strict=True) if i != name]
        plan.cached.req_ids[:] = [i for i, _ in pairs]
        plan.cached.num_computed[:] = [n for _, n in pairs]
        for kept in (plan.cached.new_block_ids, plan.num_scheduled):
            kept.pop(name, None)
        running[:] = [req for req in running if req is not victim]
        self.kv.free(victim)
        victim.num_computed_tokens = victim.num_in_flight = 0
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.put_back(victim)
        plan.preempted.append(name)
