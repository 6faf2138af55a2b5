"""Waits for a step with room."""


def chunk(gap: int, budget: int, threshold: int) -> int:
    if gap > budget or 0 < threshold < gap:
        return 0
    return gap
