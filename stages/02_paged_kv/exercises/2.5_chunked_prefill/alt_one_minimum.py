"""Zero is falsy, so the budget stands in for a threshold that is off."""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """One minimum of three."""
    return min(gap, budget, threshold or budget)
