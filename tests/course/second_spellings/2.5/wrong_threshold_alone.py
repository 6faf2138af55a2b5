"""Looks at the budget only without a threshold."""


def chunk(gap: int, budget: int, threshold: int) -> int:
    limit = budget
    if threshold > 0:
        limit = threshold
    return limit if gap > limit else gap
