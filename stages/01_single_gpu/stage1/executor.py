"""The executor of one process: a plan is computed where it is submitted.

Owns the runner. The future is complete when ``submit`` returns, so a core written for several plans in flight works
unchanged.

vLLM: ``vllm/executor/uniproc_executor.py``.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from stage1.interfaces import Runner
from stage1.records import ModelRunnerOutput, SchedulerOutput


class UniprocExecutor:
    """``Executor`` over one runner in this process."""

    max_in_flight = 1

    def __init__(self, runner: Runner) -> None:
        self._runner: Runner | None = runner

    def submit(self, plan: SchedulerOutput) -> Future[ModelRunnerOutput]:
        """Compute ``plan`` now."""
        future: Future[ModelRunnerOutput] = Future()
        try:
            future.set_result(self._get().execute(plan))
        except Exception as error:
            future.set_exception(error)
        return future

    def call(self, method: str, *args: Any) -> list[Any]:
        """Run a method of the runner: a list of one answer."""
        return [getattr(self._get(), method)(*args)]

    def shutdown(self) -> None:
        """Let go of the runner and with it of weights and cache."""
        self._runner = None

    def _get(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("the executor has been shut down")
        return self._runner
