"""Steps that nobody asked for: they compile what a request would else wait for.

Owns the plans of these steps. Does not run them (a runner does), and does not know kernels.

A kernel is compiled at its first launch, for the sizes and types that it meets, and that takes up to seconds. Graphs
are captured at the start and bring theirs along; what is left are steps without a graph, and draws behind one. So
made-up requests go through steps of many kinds:

    1    some prompts of a token, and beside them chunks, also more of them than a graph takes
    2    all of them decode, each with another kind of draw
    3    they are gone

Kernels have variants by the queries of a request, the tokens of a step and its number of requests. The mixtures here
meet nearly all that a step without a graph can ask for; an odd one may still bring a variant of its own.

Everyone has the same blocks, which nobody owns yet: what is written there is read by no one.

vLLM: ``v1/worker/gpu_worker.py`` (``compile_or_warm_up_model``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage2.graphs import MAX_CHUNKS, max_chunks

# Every way of drawing a token. Those with penalties or log-probabilities come alone: they take memory for each request.
DRAWS = (
    SamplingParams(temperature=0.0, seed=0),
    SamplingParams(temperature=1.0, seed=0),
    SamplingParams(temperature=1.0, seed=0, top_p=0.9),
    SamplingParams(temperature=1.0, seed=0, frequency_penalty=0.5),
    SamplingParams(temperature=1.0, seed=0, top_k=5, min_p=0.1, frequency_penalty=0.5),
    SamplingParams(temperature=1.0, seed=0, logprobs=1),
)
IN_MIXTURES = DRAWS[:3]
MANY = MAX_CHUNKS + 1  # chunks that no small graph takes
# Chunks beside any number of decodes, (how many, tokens of each): kernels differ by how many queries a request has.
BESIDE_ALL = ((0, 0), (1, 5), (MANY, 2), (MANY, 8), (MANY, 10))
# And beside one, and beside so many that a kernel pads requests to more: those of prompts differ by a step's tokens.
BESIDE_SOME = ((1, 9), (MANY, 16), (MANY, 20), (MANY, 40), (2 * MANY, 40), (66, 8))
SOME = (1, 64)
LARGE = 2048  # tokens of the largest made-up step, if that many are allowed


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
    for number in powers(limits.max_reqs):
        for chunks in fitting(limits, number, BESIDE_ALL):
            yield from life(limits, [1] * number + chunks, IN_MIXTURES)
    for number in SOME:
        for chunks in [*fitting(limits, number, BESIDE_SOME), *filling(limits, number)]:
            yield from life(limits, [1] * number + chunks, IN_MIXTURES)
    for chunks in fitting(limits, 0, ((1, 5),)):
        yield from life(limits, chunks, IN_MIXTURES)


def powers(most: int) -> Iterator[int]:
    """1, 2, 4, … up to ``most``."""
    number = 1
    while number <= most:
        yield number
        number *= 2


def fitting(
    limits: WarmUpLimits, num_decodes: int, shapes: Sequence[tuple[int, int]], width: int = 1
) -> Iterator[list[int]]:
    """The tokens of each chunk, for each of ``shapes`` that fits beside ``num_decodes`` requests of ``width``."""
    for count, length in shapes:
        room = limits.max_tokens - num_decodes * width - count * length
        if room >= 0 and num_decodes + count <= limits.max_reqs and length <= limits.max_len:
            yield [length] * count


def filling(limits: WarmUpLimits, num_decodes: int, width: int = 1) -> Iterator[list[int]]:
    """The tokens of each chunk in a step that is full of them, in more than its graph takes; nothing if none can be."""
    room = min(limits.max_tokens, LARGE) - num_decodes * width
    count = min(max_chunks(min(limits.max_tokens, LARGE)) + 1, limits.max_reqs - num_decodes, room)
    if count < 1:
        return
    length, more = divmod(room, count)
    if length + (more > 0) <= limits.max_len:
        yield [length] * (count - more) + [length + 1] * more


def life(limits: WarmUpLimits, lengths: Sequence[int], draws: Sequence[SamplingParams]) -> Iterator[SchedulerOutput]:
    """Requests with prompts of ``lengths`` come, decode a token and go."""
    new = arrivals(limits, lengths, draws)
    names = [data.req_id for data in new]
    yield SchedulerOutput(0, new, CachedRequests(), dict(zip(names, lengths, strict=True)))
    yield SchedulerOutput(0, [], CachedRequests(names, list(lengths)), dict.fromkeys(names, 1))
    yield SchedulerOutput(0, [], CachedRequests(), {}, finished=names)


def arrivals(
    limits: WarmUpLimits, lengths: Sequence[int], draws: Sequence[SamplingParams], first: int = 0, more: int = 1
) -> list[NewRequestData]:
    """Made-up requests, numbered from ``first`` on, with blocks for their prompts and ``more`` tokens.

    They take turns with ``draws``.
    """
    blocks = [list(range(-(-(length + more) // limits.block_size))) for length in lengths]
    return [
        NewRequestData(f"warm-up {first + i}", [0] * length, [], draws[i % len(draws)], own, 0)
        for i, (length, own) in enumerate(zip(lengths, blocks, strict=True))
    ]
