"""The proof that speculation changes nothing: greedy tokens beside plain decoding's, except where two are as good."""

from dataclasses import dataclass, field

from stage1.params import SamplingParams

MARGIN = 1e-3  # of the two best log-probabilities: below it, either may be chosen


@dataclass
class Comparison:
    """How the outputs of many prompts compare; ``ties`` are (prompt, position, margin) of the first differences."""

    num_equal: int = 0
    ties: list[tuple[int, int, float]] = field(default_factory=list)
    faults: list[tuple[int, int, float]] = field(default_factory=list)


def greedy(max_tokens: int, **more) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **more)


def margins(output) -> list[float]:
    """Of a request with ``logprobs=2``: how far the best token is ahead, at every position."""
    found = []
    for position in output.outputs[0].logprobs:
        best, second = sorted((entry.logprob for entry in position.values()), reverse=True)[:2]
        found.append(best - second)
    return found


def compare(plain, others) -> Comparison:
    """``plain`` outputs, with log-probabilities, beside ``others`` of the same prompts."""
    result = Comparison()
    for number, (expected, found) in enumerate(zip(plain, others, strict=True)):
        ours, theirs = found.outputs[0].token_ids, expected.outputs[0].token_ids
        if ours == theirs:
            result.num_equal += 1
            continue
        position = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        margin = margins(expected)[position]
        (result.ties if margin <= MARGIN else result.faults).append((number, position, margin))
    return result
