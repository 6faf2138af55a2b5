"""A dictionary of what followed first, for each length."""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """One look-up a length."""
    drafts: list[int] = []
    for length in range(rules.prompt_lookup_min, min(rules.prompt_lookup_max, len(tokens)) + 1):
        follow: dict[tuple[int, ...], int] = {}
        for end in range(length, len(tokens)):
            follow.setdefault(tuple(tokens[end - length : end]), end)
        end = follow.get(tuple(tokens[len(tokens) - length :]), len(tokens))
        drafts = list(tokens[end:]) or drafts
    return drafts[: max(0, min(room, rules.num_speculative_tokens))]
