"""Where there is a threshold, the budget is forgotten.

The threshold is a second limit beside the budget, not instead of it. The budget is what this step may still hold:
whoever takes more makes the step longer for everyone in it.
"""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """One limit or the other."""
    return min(gap, threshold or budget)
