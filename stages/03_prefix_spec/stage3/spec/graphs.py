"""CUDA graphs of steps with drafts, and of the guesses behind every step.

Owns their sizes and the choice of one. Does not know what is computed.

    verify graphs    R requests with at most 1 + k tokens each: a step that decodes, drafts included
    draft graphs     one behind each graph of a step, in which the drafter reads what that graph left

A request with fewer drafts than k, or none, sends fewer tokens; how many is read on the device.

vLLM: ``v1/worker/gpu_model_runner.py`` (``uniform_decode_query_len``), ``v1/cudagraph_dispatcher.py``.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from stage2.graphs import Computed, Size, StepGraph, capture, capture_step, graph_sizes
from stage2.inputs import StepBatch, StepBuffers
from stage2.runner import StepLimits

logger = logging.getLogger(__name__)

MAX_WIDTH = 8  # tokens of a request: what the kernel of verification takes
Draft = Callable[[StepBatch, torch.Tensor, bool], None]  # batch, hidden, whether it guesses


def verify_sizes(limits: StepLimits, max_batch: int, width: int) -> list[Size]:
    """Every size of verification worth a graph, the largest first: those of decoding, up to ``max_batch`` requests.

    Args:
        limits: of a step.
        max_batch: requests of a step, of larger ones nothing is verified.
        width: tokens of a request with all its drafts.
    """
    if width > MAX_WIDTH:
        return []
    batches = [size.num_reqs for size in graph_sizes(limits.max_reqs, 0) if size.num_chunks == 0]
    most = min(max_batch, limits.max_reqs)
    batches = sorted({n for n in batches if n < most} | {most}, reverse=True)
    return [Size(n, n * width, n, width, width) for n in batches if n * width <= limits.max_tokens]


class DraftGraphs:
    """The graphs of one drafting runner, beside those of stage 2: none at first."""

    def __init__(self) -> None:
        self.verifying: list[StepGraph] = []  # by size, rising
        # Behind a step's graph, by its identity, and whether it guesses.
        self._drafting: dict[int, tuple[torch.cuda.CUDAGraph, bool]] = {}

    def __len__(self) -> int:
        return len(self.verifying) + len(self._drafting)

    def capture_verifying(
        self, sizes: Sequence[Size], pool: Any, compute: Callable[[StepBatch], Computed], buffers: StepBuffers
    ) -> None:
        """Capture a step for each of ``sizes``; one that does not fit is left out, and the log says so."""
        self.verifying = []
        for size in sizes:
            try:
                self.verifying.append(capture_step(size, pool, compute, buffers))
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                logger.warning("out of memory: no CUDA graph verifies drafts of %d requests", size.num_reqs)
        self.verifying.sort(key=lambda graph: graph.size.num_reqs)

    def capture_drafting(self, behind: Iterable[tuple[StepGraph, StepBatch, bool]], pool: Any, draft: Draft) -> None:
        """Capture the guesses behind each step of ``behind``: its graph, what is read of it, whether it guesses."""
        self._drafting = {}
        for step, batch, guesses in behind:
            try:
                graph, _ = capture(partial(draft, batch, step.computed.hidden, guesses), pool)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                logger.warning("out of memory: no CUDA graph drafts behind %d tokens", step.size.num_tokens)
                continue
            self._drafting[id(step)] = graph, guesses

    def find(self, num_reqs: int, max_query_len: int) -> StepGraph | None:
        """The smallest graph that verifies drafts of ``num_reqs`` requests, or ``None``."""
        at = bisect_left(self.verifying, num_reqs, key=lambda graph: graph.size.num_reqs)
        if at == len(self.verifying) or max_query_len > self.verifying[at].size.max_query_len:
            return None
        return self.verifying[at]

    def replay(self, step: StepGraph, guesses: bool) -> bool:
        """Queue what follows ``step``, with guesses or without; ``False`` where there is no graph for it."""
        graph, has_guesses = self._drafting.get(id(step), (None, False))
        if graph is None or guesses != has_guesses:
            return False
        graph.replay()
        return True
