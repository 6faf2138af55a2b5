"""The largest step that the settings allow, run once to see what it needs.

Owns the shape of that step. Does not measure: ``kv_memory`` does.

vLLM: ``v1/worker/gpu_model_runner.py`` (``profile_run``, ``_dummy_run``).
"""

from __future__ import annotations

from collections.abc import Callable

from stage1.interfaces import Runner
from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage2.config import BatchConfig


def run_largest_step(
    make_runner: Callable[[int], Runner], batch: BatchConfig, max_model_len: int, block_size: int
) -> Callable[[], None]:
    """A function that computes ``max_num_batched_tokens`` tokens in as few prompts as hold them, sampling for each."""

    def run() -> None:
        lengths: list[int] = []
        left = batch.max_num_batched_tokens
        while left > 0 and len(lengths) < batch.max_num_seqs:
            lengths.append(min(left, max_model_len - 1))
            left -= lengths[-1]
        needed = [-(-length // block_size) for length in lengths]
        params = SamplingParams(temperature=1.0, top_p=0.9, seed=0, max_tokens=1)
        new, first = [], 0
        for i, (length, blocks) in enumerate(zip(lengths, needed, strict=True)):
            new.append(NewRequestData(str(i), [0] * length, [], params, list(range(first, first + blocks)), 0))
            first += blocks
        scheduled = {str(i): length for i, length in enumerate(lengths)}
        make_runner(sum(needed)).execute(SchedulerOutput(0, new, CachedRequests(), scheduled))

    return run
