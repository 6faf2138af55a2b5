"""Steps that nobody asked for: they compile what a request would else wait for.

Owns the plans of these steps. Does not run them (a runner does), and does not know kernels.

A kernel is compiled at its first launch, for the sizes and types that it meets, and that takes up to seconds. Graphs
are captured at the start and bring theirs along; what is left are steps without a graph, and draws behind one. So
made-up requests go through steps of every kind:

    1    some prompts of a token, and beside them more chunks than a graph takes
    2    all of them decode, each with another kind of draw
    3    they are gone

Everyone has the same blocks, which nobody owns yet: what is written there is read by no one.

vLLM: ``v1/worker/gpu_worker.py`` (``compile_or_warm_up_model``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage2.graphs import MAX_CHUNKS, TOKENS_A_CHUNK

# Every way of drawing a token.
DRAWS = (
    SamplingParams(temperature=0.0, seed=0),
    SamplingParams(temperature=1.0, seed=0),
    SamplingParams(temperature=1.0, seed=0, top_p=0.9),
    SamplingParams(temperature=1.0, seed=0, frequency_penalty=0.5),
    SamplingParams(temperature=1.0, seed=0, top_k=5, min_p=0.1, frequency_penalty=0.5),
    SamplingParams(temperature=1.0, seed=0, logprobs=1),
)
CHUNKS = MAX_CHUNKS + 1
LENGTHS = (2, 40)  # of chunks: rows of a tile that are mostly left over, and full ones
LARGE = 2048  # tokens of a step beyond all graphs, if that many are allowed


@dataclass(frozen=True)
class WarmUpLimits:
    """What a made-up step may be."""

    max_reqs: int
    max_tokens: int  # of a step
    max_len: int  # of a request, with a few tokens to spare
    block_size: int
    vocab_size: int


WarmUp = Callable[[WarmUpLimits], Iterable[SchedulerOutput]]


def warm_up_plans(limits: WarmUpLimits) -> Iterator[SchedulerOutput]:
    """The plans, in order, for a runner that holds no request; it holds none when the last one was run."""
    for params in DRAWS:
        yield from life(limits, [1], [params])
    for num_decodes, chunks in mixtures(limits, limits.max_reqs):
        yield from life(limits, [1] * num_decodes + chunks, DRAWS)


def mixtures(limits: WarmUpLimits, most: int, width: int = 1) -> Iterator[tuple[int, list[int]]]:
    """1, 2, 4, … up to ``most`` requests that decode: alone, beside chunks of ``LENGTHS``, and in a step full of them.

    Args:
        limits: of the step.
        most: requests that decode.
        width: tokens of each of them.

    Yields:
        how many decode, and the tokens of each chunk.
    """
    number = 1
    while number <= most:
        yield number, []
        room = min(limits.max_tokens, LARGE) - number * width
        most_chunks = min(limits.max_reqs - number, room)
        if most_chunks >= CHUNKS:
            count = min(max(CHUNKS, room // TOKENS_A_CHUNK + 1), most_chunks)
            full, more = divmod(room, count)
            for chunks in [[length] * CHUNKS for length in LENGTHS] + [[full] * (count - more) + [full + 1] * more]:
                if sum(chunks) <= room and max(chunks) <= limits.max_len:
                    yield number, chunks
        number *= 2


def life(limits: WarmUpLimits, lengths: Sequence[int], draws: Sequence[SamplingParams]) -> Iterator[SchedulerOutput]:
    """Requests with prompts of ``lengths`` come, decode a token and go."""
    new = arrivals(limits, lengths, draws)
    names = [data.req_id for data in new]
    yield SchedulerOutput(0, new, CachedRequests(), dict(zip(names, lengths, strict=True)))
    yield SchedulerOutput(0, [], CachedRequests(names, list(lengths)), dict.fromkeys(names, 1))
    yield SchedulerOutput(0, [], CachedRequests(), {}, finished=names)


def arrivals(
    limits: WarmUpLimits, lengths: Sequence[int], draws: Sequence[SamplingParams], first: int = 0
) -> list[NewRequestData]:
    """Made-up requests, numbered from ``first`` on; they take turns with ``draws``."""
    blocks = list(range(-(-limits.max_len // limits.block_size)))
    return [
        NewRequestData(f"warm-up {first + i}", [0] * length, [], draws[i % len(draws)], blocks, 0)
        for i, length in enumerate(lengths)
    ]
