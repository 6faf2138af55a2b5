"""The search finds the last tokens themselves, and nothing follows them.

The last n tokens always occur once: at the end. A search that may end there is content with that, drafts nothing, and
never tries a shorter match. Let the search stop one place before: what is found must have at least one token behind
it.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.spec.ngram import NgramRules


def propose(tokens: Sequence[int], rules: NgramRules, room: int) -> list[int]:
    """One place too many."""
    text = list(tokens)
    for length in range(min(rules.prompt_lookup_max, len(text)), rules.prompt_lookup_min - 1, -1):
        for start in range(len(text) - length + 1):
            if text[start : start + length] == text[len(text) - length :]:
                return text[start + length :][: max(0, min(room, rules.num_speculative_tokens))]
    return []
