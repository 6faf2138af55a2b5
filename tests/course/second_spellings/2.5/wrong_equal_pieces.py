"""Divides first."""

from math import ceil


def chunk(gap: int, budget: int, threshold: int) -> int:
    most = min(budget, threshold or budget)
    return ceil(gap / ceil(gap / most))
