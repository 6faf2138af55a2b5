"""A step computes either prompts or single tokens.

There are no phases. Requests that have their prompt behind them go on in the same step in which another one computes
its prompt: a step is a flat row of tokens, whoever they belong to. Take each request's gap, whatever its size.
"""

from __future__ import annotations

from stage1.records import CachedRequests, SchedulerOutput
from stage1.scheduler import StaticScheduler as Reference


class StaticScheduler(Reference):
    """Prompts first, everyone else waits."""

    def schedule(self) -> SchedulerOutput:
        """While a prompt is left, only prompts."""
        if not self._batch:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(step=self._step, new=[], cached=CachedRequests(), num_scheduled={})
        prompts = [req for req in self._batch if not req.output_ids]
        for req in prompts or self._batch:
            num_tokens = req.num_tokens_to_compute
            if plan.total_tokens + num_tokens <= self._token_budget:
                self._put(plan, req, num_tokens)
        self._scheduled_tokens = plan.total_tokens
        return self._lifecycle.plan_made(plan)
