"""A scheduler with its prefix cache's side doors: salts go in, figures come out.

Owns which requests have not been told yet how much of them was cached. Does not schedule: any scheduler can be wrapped,
and the wrapper offers the same socket.

vLLM: ``v1/core/sched/scheduler.py`` (``make_stats``, ``reset_prefix_cache``), ``v1/metrics/stats.py``
(``PrefixCacheStats``).
"""

from __future__ import annotations

from collections.abc import Sequence

from stage1.interfaces import Scheduler
from stage1.records import EngineCoreOutputs, EngineCoreRequest, ModelRunnerOutput, SchedulerOutput, StepStats
from stage3.prefix.kv_manager import PrefixKVManager


class PrefixScheduler:
    """``Scheduler`` around one whose blocks come from ``kv``."""

    def __init__(self, scheduler: Scheduler, kv: PrefixKVManager) -> None:
        self._scheduler = scheduler
        self._kv = kv
        self._untold: dict[str, int] = {}  # cached tokens of requests without an output yet

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.has_work

    def add(self, request: EngineCoreRequest) -> None:
        """Queue a request; with a salt, it shares blocks only with those of the same salt."""
        self._scheduler.add(request)  # first: what it refuses must leave no trace, and may have the id of a live one
        if request.cache_salt is not None:
            self._kv.set_extra_keys(request.req_id, {"cache_salt": request.cache_salt})

    def abort(self, req_ids: Sequence[str]) -> None:
        """End requests now; unknown ids are ignored."""
        self._scheduler.abort(req_ids)
        for req_id in req_ids:
            self._untold.pop(req_id, None)

    def schedule(self) -> SchedulerOutput:
        """The next step's plan, unchanged."""
        plan = self._scheduler.schedule()
        for new in plan.new:
            cached = self._kv.num_cached_tokens(new.req_id)
            if not new.output_ids and cached is not None:
                self._untold[new.req_id] = cached
        return plan

    def update(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> EngineCoreOutputs:
        """Read a step's result; the first output of a request says how much of it was cached."""
        return self._tell(self._scheduler.update(plan, out))

    def fail(self, plan: SchedulerOutput, reason: str) -> EngineCoreOutputs:
        """The step raised: end its requests with an error, keep all others."""
        return self._tell(self._scheduler.fail(plan, reason))

    def stats(self) -> StepStats:
        """The scheduler's, and the tokens that were looked up and found since the start."""
        stats = self._scheduler.stats()
        stats.prefix_queries = self._kv.num_queried_tokens
        stats.prefix_hits = self._kv.num_hit_tokens
        return stats

    def reset_prefix_cache(self) -> bool:
        """Forget what all blocks hold; ``False`` and nothing is forgotten while a request holds one."""
        return self._kv.reset()

    def _tell(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs:
        if self._untold:
            for req_id in outputs.req_ids:
                if (cached := self._untold.pop(req_id, None)) is not None:
                    outputs.num_cached_tokens[req_id] = cached
        return outputs
