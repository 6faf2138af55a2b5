"""Stage 2's warm-up, with what is new here: masks of grammars, and steps that verify drafts.

Owns the further plans. Does not run them.

    1    some prompts of a token
    2    they verify drafts, beside more chunks than a graph takes
    3    all are gone

vLLM: ``v1/worker/gpu_model_runner.py`` (``_dummy_run``, ``_dummy_sampler_run``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stage1.params import SamplingParams
from stage1.records import CachedRequests, SchedulerOutput
from stage2 import warm_up as stage_2
from stage2.inputs import MOST_FEW
from stage2.warm_up import (
    BESIDE_SOME,
    DRAWS,
    IN_MIXTURES,
    MANY,
    SOME,
    WarmUpLimits,
    arrivals,
    filling,
    fitting,
    life,
    powers,
)
from stage3.grammar.masks import WORD
from stage3.grammar.records import GrammarMasks
from stage3.spec.rules import Rules

GUIDED = SamplingParams(temperature=1.0, seed=0, structured_outputs={"choice": ["a"]})
VERIFIED = (GUIDED, *IN_MIXTURES)  # draws of requests that may have drafts; the first request is guided


def warm_up_plans(limits: WarmUpLimits, rules: Rules | None = None) -> Iterator[SchedulerOutput]:
    """The plans, in order, for a runner that speculates by ``rules``."""
    yield from stage_2.warm_up_plans(limits)
    for params in ([GUIDED], [GUIDED, DRAWS[2]][: min(limits.max_reqs, limits.max_tokens)]):
        yield from (_guided(plan, limits) for plan in life(limits, [1] * len(params), params))
    if rules is None:
        return
    width = 1 + rules.num_speculative_tokens
    shapes = ((0, 0), (MANY, max(10, width + 2)))
    for number in powers(min(rules.max_batch, limits.max_reqs)):
        for chunks in fitting(limits, number, shapes, width):
            for count in sorted({1, min(rules.num_speculative_tokens, MOST_FEW - 1), rules.num_speculative_tokens}):
                yield from _verification(limits, count, number, chunks)
    for number in SOME:
        for chunks in [*fitting(limits, number, BESIDE_SOME, width), *filling(limits, number, width)]:
            yield from _verification(limits, rules.num_speculative_tokens, number, chunks)


def _guided(plan: SchedulerOutput, limits: WarmUpLimits) -> SchedulerOutput:
    """``plan`` with masks that forbid nothing, for its first request and that one's drafts."""
    if plan.num_scheduled:
        name = next(iter(plan.num_scheduled))
        count = 1 + len(plan.drafts.get(name, ()))
        words = -(-limits.vocab_size // WORD)
        plan.extras.append(GrammarMasks([name], [count], words, b"\xff" * (4 * words * count)))
    return plan


def _verification(
    limits: WarmUpLimits, num_drafts: int, num_reqs: int, chunks: Sequence[int]
) -> Iterator[SchedulerOutput]:
    """Requests come with a token and verify drafts, beside the first tokens of ``chunks``; all of them go."""
    most = (limits.max_tokens - sum(chunks)) // num_reqs - 1  # drafts of each that the step has room for
    count = min(num_drafts, most, limits.max_len - 1)
    if count < 1:
        return
    new = arrivals(limits, [1] * num_reqs, VERIFIED, more=1 + count)
    names = [data.req_id for data in new]
    yield _guided(SchedulerOutput(0, new, CachedRequests(), dict.fromkeys(names, 1)), limits)
    others = arrivals(limits, chunks, IN_MIXTURES, first=num_reqs)
    scheduled = dict.fromkeys(names, 1 + count) | {data.req_id: len(data.prompt_ids) for data in others}
    cached, drafts = CachedRequests(names, [1] * num_reqs), {name: [0] * count for name in names}
    yield _guided(SchedulerOutput(0, others, cached, scheduled, drafts), limits)
    yield SchedulerOutput(0, [], CachedRequests(), {}, finished=list(scheduled))
