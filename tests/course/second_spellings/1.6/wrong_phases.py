"""Looks for prompts, and returns with them."""

from stage1.records import CachedRequests, SchedulerOutput
from stage1.scheduler import StaticScheduler as Scheduler


class StaticScheduler(Scheduler):
    def schedule(self) -> SchedulerOutput:
        self._waiting += self._lifecycle.released()
        if len(self._batch) == 0:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(self._step, [], CachedRequests(), {})
        new = [req for req in self._batch if req.num_computed_tokens == 0]
        for req in new if new else self._batch:
            gap = req.num_tokens_to_compute
            if 0 < gap <= self._token_budget - plan.total_tokens:
                self._put(plan, req, gap)
        self._scheduled_tokens = plan.total_tokens
        return self._lifecycle.plan_made(plan)
