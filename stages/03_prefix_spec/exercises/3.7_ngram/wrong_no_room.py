"""Drafts are made for which the request has no room.

A request ends at the model's longest text. Every draft that is verified needs a position of its own, and one more
token follows the last of them: `room` says how many drafts still fit. It may be 0, and even less; a negative number
in a slice cuts from the other end.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """As many as the rules say."""
    text = list(tokens)
    for length in range(rules.prompt_lookup_max, rules.prompt_lookup_min - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return text[start + length :][: rules.num_speculative_tokens]
    return []
