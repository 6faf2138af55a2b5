"""A runner that is made only to be measured: the largest step that the settings allow, and the graphs.

Owns the shape of that step. Does not measure: ``kv_memory`` does.

vLLM: ``v1/worker/gpu_model_runner.py`` (``profile_run``, ``_dummy_run``).
"""

from __future__ import annotations

from collections.abc import Callable

from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage2.runner import PagedRunner, StepLimits


class ProfileRun:
    """Makes a runner with a small cache when it is first needed.

    Args:
        make_runner: from a number of blocks to a runner.
        limits: of the largest step.
        captures: whether the engine will capture graphs.
    """

    def __init__(self, make_runner: Callable[[int], PagedRunner], limits: StepLimits, captures: bool) -> None:
        self._make_runner = make_runner
        self._limits = limits
        self._captures = captures
        self.num_blocks = 0  # of the runner's cache

    def run(self) -> PagedRunner:
        """Compute ``max_tokens`` tokens in as few prompts as hold them, drawing for each; returns the runner.

        One prompt is a single token, so that the kernels of decodes beside prompts are compiled too.
        """
        limits = self._limits
        lengths = [1] if limits.max_reqs > 1 else []
        left = limits.max_tokens - len(lengths)
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
        return runner

    def capture(self, runner: PagedRunner) -> None:
        """What will be captured, on ``runner``."""
        if self._captures:
            runner.capture_graphs()
