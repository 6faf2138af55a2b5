"""The shortest match decides.

A single token has nearly always come before, and says little about what follows: the more tokens agree, the better
the guess. Try `prompt_lookup_max` tokens first and go down, or keep looking until the longest match is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """From the short end."""
    text = list(tokens)
    for length in range(rules.prompt_lookup_min, rules.prompt_lookup_max + 1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return text[start + length :][: max(0, min(room, rules.num_speculative_tokens))]
    return []
