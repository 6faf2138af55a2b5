"""Prompt and output, every time."""

from stage1.records import CachedRequests, SchedulerOutput
from stage1.scheduler import StaticScheduler as Scheduler


class StaticScheduler(Scheduler):
    def schedule(self) -> SchedulerOutput:
        self._waiting += self._lifecycle.released()
        if len(self._batch) == 0:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(self._step, [], CachedRequests(), {})
        for req in self._batch:
            everything = req.num_prompt_tokens + len(req.output_ids)
            if everything <= self._token_budget - plan.total_tokens:
                self._put(plan, req, everything)
        self._scheduled_tokens = plan.total_tokens
        return self._lifecycle.plan_made(plan)
