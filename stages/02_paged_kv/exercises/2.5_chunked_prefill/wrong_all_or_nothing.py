"""A prompt that does not fit is not cut: it gets nothing.

It would wait for a step in which it fits whole, and a prompt longer than the budget of an empty step would wait for
ever. Give it what the step holds, and the rest later: its keys and values stay in the cache between the pieces.
"""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """The whole gap, or nothing of it."""
    limit = min(budget, threshold) if threshold else budget
    return gap if gap <= limit else 0
