"""Sorts the three, and takes the first."""


def chunk(gap: int, budget: int, threshold: int) -> int:
    return sorted([budget, threshold, gap])[0]
