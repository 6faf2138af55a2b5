"""The drafts begin with the match instead of behind it.

The match is what the request has just written. What comes next is what *followed* the match: the drafts begin n
tokens later, at `start + n`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """From the match's beginning on."""
    text = list(tokens)
    for length in range(rules.prompt_lookup_max, rules.prompt_lookup_min - 1, -1):
        for start in range(len(text) - length):
            if text[start : start + length] == text[len(text) - length :]:
                return text[start:][: max(0, min(room, rules.num_speculative_tokens))]
    return []
