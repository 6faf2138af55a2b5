"""The budget is for newcomers."""

from stage1.records import SchedulerOutput
from stage1.request import Status
from stage2.scheduler import ContinuousScheduler as Scheduler


class ContinuousScheduler(Scheduler):
    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        left = budget
        for req in list(self._running):
            gap = req.num_tokens_to_compute
            if gap > 0 and left > 0 and req.status is Status.RUNNING:
                n = self._share(gap, left)
                if not self._make_room(req, req.num_computed_tokens + n, plan):
                    continue
                plan.cached.req_ids.append(req.req_id)
                plan.cached.num_computed.append(req.num_computed_tokens)
                plan.num_scheduled[req.req_id] = n
                req.num_computed_tokens += n
                req.num_in_flight += n == gap
        return left
