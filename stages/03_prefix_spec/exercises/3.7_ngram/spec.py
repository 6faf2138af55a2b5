"""Every length and every place, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """The longest first, then from the left."""
    text = list(tokens)
    for length in range(rules.prompt_lookup_max, rules.prompt_lookup_min - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                drafts = text[start + length :]
                return drafts[: max(0, min(room, rules.num_speculative_tokens))]
    return []
