"""How many tokens agree, at each place, counted backwards; the best count wins."""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """The largest count, and of equal ones the first."""

    def agreeing(end: int) -> int:
        count = 0
        while count < min(end, rules.prompt_lookup_max) and tokens[end - 1 - count] == tokens[-1 - count]:
            count += 1
        return count

    best = max(range(1, len(tokens)), key=agreeing, default=0)
    if room <= 0 or best == 0 or agreeing(best) < rules.prompt_lookup_min:
        return []
    return list(tokens)[best:][: min(room, rules.num_speculative_tokens)]
