"""At once."""

from stage1.records import SchedulerOutput
from stage1.request import Request, Status
from stage2.preemption import Preemption as Engine


class Preemption(Engine):
    def make_room(self, running: list[Request], plan: SchedulerOutput) -> bool:
        victim = self._waiting.worst(running)
        victim.status = Status.PREEMPTED
        here = 1 if victim.req_id in plan.num_scheduled else 0
        if here in (0, 1):
            self._send_back(victim, running, plan)
            return True
        self.leaving = victim
        return False

    def _send_back(self, victim: Request, running: list[Request], plan: SchedulerOutput) -> None:
        name = victim.req_id
        self._waiting.put_back(victim)
        running.remove(victim)
        plan.preempted += [name]
        self.num_preemptions, victim.num_preemptions = self.num_preemptions + 1, victim.num_preemptions + 1
        self._kv.free(victim)
        if name in plan.num_scheduled:
            i = plan.cached.req_ids.index(name)
            plan.cached.req_ids.pop(i)
            plan.cached.num_computed.pop(i)
            plan.cached.new_block_ids.pop(name, None)
            plan.num_scheduled.pop(name)
        victim.num_computed_tokens = victim.num_in_flight = 0
