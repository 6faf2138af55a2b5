"""One token after another, until something is in the way."""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """Counts up."""
    taken = 0
    while True:
        nothing_left = taken == gap
        step_is_full = taken == budget
        had_its_share = threshold > 0 and taken == threshold
        if nothing_left or step_is_full or had_its_share:
            return taken
        taken += 1
