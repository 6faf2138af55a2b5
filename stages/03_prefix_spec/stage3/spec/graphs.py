"""CUDA graphs of steps with drafts, and of the guesses behind every step.

Owns their sizes and the choice of one. Does not know what is computed.

    verify graphs    R requests with at most 1 + k tokens each: a step that decodes, drafts included
    mixed graphs     those beside some chunks of prompts, in 64, 128, … 512, 640, … 1,024 tokens, and as stage 2
    draft graphs     one behind each graph of a step, in which the drafter reads what that graph left

A request with fewer drafts than k, or none, sends fewer tokens; how many is read on the device.

vLLM: ``v1/worker/gpu_model_runner.py`` (``uniform_decode_query_len``), ``v1/cudagraph_dispatcher.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stage2.graphs import (
    Computed,
    Size,
    StepGraph,
    capture,
    capture_step,
    cuts_of,
    first_mixed,
    first_whole,
    graph_sizes,
    max_chunks,
)
from stage2.inputs import MOST_FEW, StepBatch, StepBuffers
from stage2.runner import StepLimits

logger = logging.getLogger(__name__)

# A request that decodes has several tokens, so a batch and the prompts that join it have more than stage 2's.
LARGE_MIXED = (640, 768, 896, 1024)
Draft = Callable[[StepBatch, torch.Tensor, bool], None]  # batch, hidden, whether it guesses


def verify_sizes(limits: StepLimits, max_batch: int, width: int, cuts: Sequence[bool | None] = (None,)) -> list[Size]:
    """Every size of a step with drafts worth a graph, the largest first.

    Args:
        limits: of a step.
        max_batch: requests of a step; larger ones verify only what was drafted before others joined, without a graph.
        width: tokens of a request with all its drafts.
        cuts: as in ``graph_sizes``, of those without chunks.
    """
    if width > MOST_FEW:
        return []
    sizes = graph_sizes(limits.max_reqs, limits.captured_tokens)
    most = min(max_batch, limits.max_reqs)
    tokens = {size.num_tokens for size in sizes if size.num_chunks and size.num_tokens > width}
    tokens |= {n for n in LARGE_MIXED if n <= limits.max_tokens}
    mixed = [Size(min(n, most), n, max_chunks(n), n, width) for n in tokens]
    batches = sorted({size.num_reqs for size in sizes if not size.num_chunks and size.num_reqs < most} | {most})
    fitting = [n for n in batches if n * width <= limits.max_tokens]
    whole = [Size(n, n * width, 0, width, width, cut) for n in fitting for cut in cuts_of(n * width, cuts)]
    return sorted(mixed + whole, key=lambda size: -size.num_tokens)


def drafts_behind(sizes: Sequence[Size], most: int, sees_all: bool) -> list[tuple[int, bool]]:
    """What is worth a graph behind those of ``sizes``: (number of the size, whether it guesses).

    Guesses, where a step of at most ``most`` requests may take the graph; following without guesses, where a larger one
    may and the drafter sees all tokens. A step with prompts among its tokens may take a graph with room for many.
    """
    smaller = [size.num_reqs for size in sizes if size.max_query_len == 1]  # each serves from the next smaller on
    found = []
    for i, size in enumerate(sizes):
        fewest = 1 if size.num_chunks else max((n for n in smaller if n < size.num_reqs), default=0) + 1
        if fewest <= most:
            found.append((i, True))
        if sees_all and size.num_reqs > most:
            found.append((i, False))
    return found


class DraftGraphs:
    """The graphs of one drafting runner, beside those of stage 2: none at first."""

    def __init__(self) -> None:
        self.verifying: list[StepGraph] = []  # of requests with at most 1 + k tokens, by their number, rising
        self.mixed: list[StepGraph] = []  # beside chunks of prompts, by the number of tokens, rising
        # Behind a step's graph, by its identity, and whether it guesses.
        self._drafting: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}  # by step, and whether it guesses

    def __len__(self) -> int:
        return len(self.verifying) + len(self.mixed) + len(self._drafting)

    def capture_verifying(
        self, sizes: Sequence[Size], pool: Any, compute: Callable[[StepBatch], Computed], buffers: StepBuffers
    ) -> None:
        """Capture a step for each of ``sizes``; one that does not fit is left out, and the log says so."""
        self.verifying, self.mixed = [], []
        for size in sizes:
            try:
                made = capture_step(size, pool, compute, buffers)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                logger.warning("out of memory: no CUDA graph verifies drafts in %d tokens", size.num_tokens)
                continue
            (self.mixed if size.num_chunks else self.verifying).append(made)
        self.verifying.sort(key=lambda graph: graph.size.num_reqs)
        self.mixed.sort(key=lambda graph: graph.size.num_tokens)

    def capture_drafting(self, behind: Iterable[tuple[StepGraph, StepBatch, bool]], pool: Any, draft: Draft) -> None:
        """Capture the guesses behind each step of ``behind``: its graph, what is read of it, whether it guesses."""
        self._drafting = {}
        for step, batch, guesses in behind:
            hidden = step.computed.hidden[: batch.num_tokens]
            try:
                self._drafting[id(step), guesses], _ = capture(partial(draft, batch, hidden, guesses), pool)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                logger.warning("out of memory: no CUDA graph drafts behind %d tokens", step.size.num_tokens)

    def find(
        self, num_reqs: int, num_tokens: int, counts: npt.NDArray[np.int32], cut: bool | None = None
    ) -> StepGraph | None:
        """The smallest graph of a step with drafts that holds such a step, or ``None``.

        Args:
            num_reqs: requests of the step.
            num_tokens: of all of them.
            counts: [R], of each.
            cut: as in ``StepGraphs.find``.
        """
        if self.verifying and counts.max() <= self.verifying[0].size.max_draws:
            return first_whole(self.verifying, num_reqs, cut)
        width = self.mixed[0].size.max_draws if self.mixed else 0
        return first_mixed(self.mixed, num_reqs, num_tokens, int((counts > width).sum()))

    def replay(self, step: StepGraph, guesses: bool) -> bool:
        """Queue what follows ``step``, with guesses or without; ``False`` where there is no graph for it."""
        graph = self._drafting.get((id(step), guesses))
        if graph is None:
            return False
        graph.replay()
        return True
