"""A runner that is made only to be measured: the largest step that the settings allow, the graphs, the warm-up.

Owns the shape of that step. Does not measure: ``kv_memory`` does. Kernels stay compiled when the runner is gone, so an
engine that was measured has been warmed up: its own graphs need not wait for a compiler either.

vLLM: ``v1/worker/gpu_model_runner.py`` (``profile_run``, ``_dummy_run``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage2.runner import PagedRunner, StepLimits


class ProfileRun:
    """Makes a runner with a small cache when it is first needed.

    Args:
        make_runner: from a number of blocks to a runner.
        limits: of the largest step.
        captures: whether the engine will capture graphs.
        warm_up: from a number of blocks to the steps that compile what is left.
    """

    def __init__(
        self,
        make_runner: Callable[[int], PagedRunner],
        limits: StepLimits,
        captures: bool,
        warm_up: Callable[[int], Sequence[SchedulerOutput]],
    ) -> None:
        self._make_runner = make_runner
        self._limits = limits
        self._captures = captures
        self._warm_up = warm_up
        self.num_blocks = 0  # of the runner's cache
        self.is_warm = False

    def run(self) -> PagedRunner:
        """Compute ``max_tokens`` tokens in as few prompts as hold them, drawing for each; returns the runner."""
        limits, left = self._limits, self._limits.max_tokens
        lengths: list[int] = []
        while left > 0 and len(lengths) < limits.max_reqs:
            lengths.append(min(left, limits.max_model_len - 1))
            left -= lengths[-1]
        needed = [-(-length // limits.block_size) for length in lengths]
        params = SamplingParams(temperature=1.0, top_p=0.9, seed=0, max_tokens=1)
        new, first = [], 0
        for i, (length, blocks) in enumerate(zip(lengths, needed, strict=True)):
            new.append(NewRequestData(str(i), [0] * length, [], params, list(range(first, first + blocks)), 0))
            first += blocks
        scheduled = {str(i): length for i, length in enumerate(lengths)}
        self.num_blocks = sum(needed)
        runner = self._make_runner(self.num_blocks)
        runner.execute(SchedulerOutput(0, new, CachedRequests(), scheduled))
        runner.execute(SchedulerOutput(0, [], CachedRequests(), {}, finished=list(scheduled)))
        return runner

    def capture(self, runner: PagedRunner) -> None:
        """What will be captured, on ``runner``."""
        if self._captures:
            runner.capture_graphs()

    def warm_up(self, runner: PagedRunner) -> None:
        """Compile the rest, on ``runner`` with its graphs."""
        runner.warm_up(self._warm_up(self.num_blocks))
        self.is_warm = True
