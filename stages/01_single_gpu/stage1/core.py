"""The engine core: the loop of schedule, submit, update.

Owns the spine that all six stages share. Does not know text, clients or devices.

vLLM: ``v1/engine/core.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from stage1.interfaces import EngineDeadError, Executor, Scheduler
from stage1.records import EngineCoreOutputs, EngineCoreRequest, SchedulerOutput, StepStats

logger = logging.getLogger(__name__)

PAUSE = 0.001  # seconds, between steps in which nobody can run


class EngineCore:
    """One scheduler over one executor."""

    def __init__(
        self, scheduler: Scheduler, executor: Executor, on_shutdown: Callable[[], None] = lambda: None
    ) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self._on_shutdown = on_shutdown
        self._step_ms = 0.0

    @property
    def has_work(self) -> bool:
        """Whether ``step`` would do anything."""
        return self.scheduler.has_work

    def add_request(self, request: EngineCoreRequest) -> None:
        """Queue ``request``; raises ``ValueError`` when it cannot be taken."""
        self.scheduler.add(request)

    def abort(self, req_ids: Sequence[str]) -> None:
        """End requests now; unknown ids are ignored."""
        self.scheduler.abort(req_ids)

    def step(self) -> EngineCoreOutputs:
        """Compute one step.

        Raises:
            EngineDeadError: the step failed and the device no longer works.
        """
        start = time.perf_counter()
        plan = self.scheduler.schedule()
        if not plan.num_scheduled and self.scheduler.has_work:
            time.sleep(PAUSE)  # all are held back by someone who works beside this thread: let it
        try:
            future = self.executor.submit(plan)
        except BaseException:  # an interrupt: the plan may not have arrived, and nobody will read its result
            self.scheduler.fail(plan, "the step was interrupted")
            raise
        try:
            outputs = self.scheduler.update(plan, future.result())
        except Exception as error:
            outputs = self._survive(plan, error)
        self._step_ms = (time.perf_counter() - start) * 1e3
        outputs.stats = self.stats()
        return outputs

    def stats(self) -> StepStats:
        """The engine's state after the last step."""
        stats = self.scheduler.stats()
        stats.step_ms = self._step_ms
        return stats

    def call(self, method: str, *args: Any) -> list[Any]:
        """Run a method of every runner."""
        return self.executor.call(method, *args)

    def shutdown(self) -> None:
        """Free the device; a second call does nothing."""
        self.executor.shutdown()
        self._on_shutdown()

    def _survive(self, plan: SchedulerOutput, error: Exception) -> EngineCoreOutputs:
        """A step raised: its requests end with the error, unless nothing works any more."""
        logger.exception("step %d failed", plan.step)
        reason = f"{type(error).__name__}: {error}"
        try:
            self.executor.call("check_health")
        except Exception as broken:
            raise EngineDeadError(
                f"step {plan.step} failed ({reason}) and the device is unusable ({broken})"
            ) from error
        return self.scheduler.fail(plan, reason)
