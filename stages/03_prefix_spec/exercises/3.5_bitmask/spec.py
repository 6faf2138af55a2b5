"""One token at a time, in Python's own integers."""

from __future__ import annotations

from collections.abc import Collection


def words_of(allowed: Collection[int], vocab_size: int) -> list[int]:
    """The words of a mask that allows ``allowed``."""
    words = [0] * -(-vocab_size // 32)
    for token in allowed:
        words[token // 32] += 2 ** (token % 32)
    return words
