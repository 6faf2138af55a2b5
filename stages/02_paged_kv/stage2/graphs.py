"""CUDA graphs: a whole step, from the input launches to the drawn tokens, replayed with one call.

Owns the sizes that are captured and the choice of one for a step. Does not know what is computed.

Launching some three hundred kernels takes the host longer than a GPU takes to decode a small batch. A graph is captured
once for a padded size; a replay repeats the same launches with the same addresses, whatever the buffers hold by then.
So nothing that the launches depend on may come from the host: lengths, rows and block tables are read on the device.

    decode graphs   1, 2, 4, 8, … requests with one token each       a batch of 13 takes the graph of 16
                    each twice: attention with the keys of long requests cut into splits, and without
    mixed graphs    64, 128, … 512 tokens of any division, with at most ``MAX_CHUNKS`` requests of more than one
                    and 768, 1,024, 1,536, … where the model is small

Larger steps are launched one by one ("eagerly"): there the device is slower than the host. Where that begins depends on
the model: 8,192 tokens keep an H200 for 9 ms with 135M weights, and 300 launches keep a host for as long.

vLLM: ``v1/worker/gpu_model_runner.py`` (``capture_model``), ``vllm/compilation/cuda_graph.py``.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from stage1.batch import Sampled
from stage2.inputs import MOST_CUT, StepBatch, StepBuffers

logger = logging.getLogger(__name__)
T = TypeVar("T")

MAX_MIXED_TOKENS = 512
MIXED_STEP = 64
MAX_CHUNKS = 8
TOKENS_A_CHUNK = 64  # in larger graphs there is room for a chunk for so many tokens
# Tokens times weights of a step, up to which its launches keep the host for longer than its numbers the device.
LAUNCH_BOUND = 10**12


@dataclass(slots=True, eq=False)
class Computed:
    """What the launches of a step leave on the device."""

    hidden: torch.Tensor  # [T, hidden]
    logits: torch.Tensor  # [R, vocab], in the model's dtype
    sampled: Sampled | None  # None where drawing is not a part of the graph


@dataclass(frozen=True, slots=True)
class Size:
    """What a graph is captured for: at most so many requests, tokens, and requests with more than one token."""

    num_reqs: int
    num_tokens: int
    num_chunks: int
    max_query_len: int  # tokens of one request
    max_draws: int = 1
    cut: bool | None = None  # whether attention cuts the keys of long requests; None: there is one graph for both


@dataclass(slots=True, eq=False)
class StepGraph:
    """A captured step."""

    size: Size
    batch: StepBatch  # the padded views it reads
    computed: Computed
    graph: torch.cuda.CUDAGraph

    def replay(self) -> Computed:
        """Queue the step."""
        self.graph.replay()
        return self.computed


def most_graph_tokens(num_weights: int) -> int:
    """Tokens of the largest step worth a graph, for a model with ``num_weights`` weights in its layers."""
    return max(MAX_MIXED_TOKENS, LAUNCH_BOUND // num_weights)


def mixed_tokens(most: int) -> list[int]:
    """The tokens of mixed graphs, rising: up to ``most``, which is one of them if it is beyond ``MAX_MIXED_TOKENS``."""
    tokens = [*range(MIXED_STEP, min(most, MAX_MIXED_TOKENS) + 1, MIXED_STEP)]
    size = MAX_MIXED_TOKENS
    while size < most:
        tokens += [n for n in (size + size // 2, 2 * size) if n < most]
        size *= 2
    return [*tokens, most] if most > MAX_MIXED_TOKENS else tokens


def max_chunks(num_tokens: int) -> int:
    """Requests with more than one token that a mixed graph of ``num_tokens`` has room for."""
    return max(MAX_CHUNKS, num_tokens // TOKENS_A_CHUNK)


def graph_sizes(max_reqs: int, max_tokens: int, cuts: Sequence[bool | None] = (None,)) -> list[Size]:
    """Every size worth capturing, the largest first, so that the smaller ones find their memory in its pool.

    Args:
        max_reqs: requests of a step.
        max_tokens: of a step that is worth a graph.
        cuts: ``Size.cut`` of the decode graphs that each batch gets.
    """
    batches = [n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224) if n < max_reqs]
    batches += [*range(256, max_reqs, 64), max_reqs]
    mixed = [Size(min(max_reqs, n), n, max_chunks(n), n) for n in reversed(mixed_tokens(max_tokens))]
    return mixed + [Size(n, n, 0, 1, cut=cut) for n in sorted(batches, reverse=True) for cut in cuts_of(n, cuts)]


def cuts_of(num_tokens: int, cuts: Sequence[bool | None]) -> Sequence[bool | None]:
    """Those of ``cuts`` that make a difference in a step of ``num_tokens``."""
    return cuts if num_tokens <= MOST_CUT else (None,)


class StepGraphs:
    """The graphs of one runner: none at first."""

    def __init__(self) -> None:
        self.pool: Any = None  # their memory
        self._decode: list[StepGraph] = []  # by requests, rising
        self._mixed: list[StepGraph] = []

    def capture(self, sizes: Sequence[Size], compute: Callable[[StepBatch], Computed], buffers: StepBuffers) -> int:
        """Capture a graph for each of ``sizes`` in place of those there are; returns how many there are now.

        Where the memory does not suffice, a size is left out and the log says so: its steps take a larger graph or are
        launched one by one.

        Args:
            sizes: what to capture.
            compute: queues a step's launches for a batch of views; called twice for each size.
            buffers: where the views come from.
        """
        self._decode, self._mixed = [], []
        self.pool = torch.cuda.graph_pool_handle()
        missing: list[Size] = []
        start = time.perf_counter()
        for size in sizes:
            try:
                made = capture_step(size, self.pool, compute, buffers)
            except torch.OutOfMemoryError:
                missing.append(size)
                torch.cuda.empty_cache()
                continue
            (self._mixed if size.num_chunks else self._decode).append(made)
        self._decode.sort(key=lambda graph: graph.size.num_reqs)
        self._mixed.sort(key=lambda graph: graph.size.num_tokens)
        logger.info("%d CUDA graphs captured in %.1f s", len(sizes) - len(missing), time.perf_counter() - start)
        if missing:
            logger.warning(
                "out of memory: %d of %d CUDA graphs are left out (%s tokens); lower --gpu-memory-utilization",
                len(missing),
                len(sizes),
                ", ".join(str(size.num_tokens) for size in missing),
            )
        return len(self._decode) + len(self._mixed)

    def all(self) -> list[StepGraph]:
        """Every graph that there is."""
        return self._decode + self._mixed

    def find(self, num_reqs: int, num_tokens: int, num_chunks: int, cut: bool | None = None) -> StepGraph | None:
        """The smallest graph that holds such a step, or ``None``; of two decode graphs the one that cuts as wanted."""
        if num_chunks == 0:
            return first_whole(self._decode, num_reqs, cut)
        return first_mixed(self._mixed, num_reqs, num_tokens, num_chunks)


def first_whole(graphs: Sequence[StepGraph], num_reqs: int, cut: bool | None) -> StepGraph | None:
    """The smallest of ``graphs``, rising by requests, that holds ``num_reqs``; of two equal ones that with ``cut``."""
    at = bisect_left(graphs, num_reqs, key=lambda graph: graph.size.num_reqs)
    twins = [graph for graph in graphs[at : at + 2] if graph.size.num_reqs == graphs[at].size.num_reqs]
    return next((graph for graph in twins if graph.size.cut == cut), twins[0] if twins else None)


def first_mixed(graphs: Sequence[StepGraph], num_reqs: int, num_tokens: int, num_chunks: int) -> StepGraph | None:
    """The smallest of ``graphs`` that holds such a step; ``None`` where that is padded by more than half.

    The smallest by its tokens may be padded by more: below 128 tokens a graph is always worth it.

    Args:
        graphs: of mixed steps, rising by their tokens.
        num_reqs: of the step, as are the rest.
        num_tokens: of all of them.
        num_chunks: requests with more tokens than one that decodes.
    """
    at = bisect_left(graphs, num_tokens, key=lambda graph: graph.size.num_tokens)
    for place, graph in enumerate(graphs[at:]):
        size = graph.size
        if place > 0 and 2 * size.num_tokens > 3 * num_tokens:
            break
        if num_chunks <= size.num_chunks and num_reqs <= size.num_reqs:
            return graph
    return None


def capture_step(size: Size, pool: Any, compute: Callable[[StepBatch], Computed], buffers: StepBuffers) -> StepGraph:
    """One graph in ``pool``; ``compute`` is called twice.

    Raises:
        torch.OutOfMemoryError: it does not fit.
    """
    batch = buffers.batch(
        size.num_reqs,
        size.num_tokens,
        num_chunks=size.num_chunks,
        num_few=size.num_reqs,
        max_query_len=size.max_query_len,
        max_draws=size.max_draws,
        cut=size.cut,
        max_seq_len=0,
    )
    graph, computed = capture(lambda: compute(batch), pool)
    return StepGraph(size, batch, computed, graph)


def capture(launch: Callable[[], T], pool: Any) -> tuple[torch.cuda.CUDAGraph, T]:
    """A graph of what ``launch`` queues, and what the second of two calls returned; errors as ``capture_step``."""
    # The first compiles kernels, which a capture cannot. Not on a stream of its own: the matrix library would keep a
    # workspace of 32 MiB for each.
    launch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = launch()
    return graph, result
