"""A match of any length is taken.

Drafts are not free: each is computed, and a rejected one for nothing. `prompt_lookup_min` says how many tokens must
agree before a guess is worth that. Below it, draft nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """Down to a single token."""
    text = list(tokens)
    for length in range(rules.prompt_lookup_max, 0, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return text[start + length :][: max(0, min(room, rules.num_speculative_tokens))]
    return []
