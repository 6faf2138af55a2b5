"""One limit after the other."""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """Cut, and cut again."""
    tokens = gap
    if tokens > budget:
        tokens = budget
    if threshold and tokens > threshold:
        tokens = threshold
    return tokens
