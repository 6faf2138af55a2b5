"""How much of its gap a request closes in one step: chunked prefill.

Owns one number. Does not know blocks, seats or whose turn it is.

    budget left 6, threshold 0    a gap of 20 closes 6 now, 6 and more in later steps; a gap of 1 closes 1
    budget left 6, threshold 4    a gap of 20 closes 4, and leaves 2 of the budget to those who come after it

vLLM: ``v1/core/sched/scheduler.py`` (``long_prefill_token_threshold``).
"""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """Tokens that a request with ``gap`` tokens to compute gets in this step.

    Args:
        gap: tokens to compute, 0 or more.
        budget: tokens that this step may still hold, 1 or more.
        threshold: most tokens of one request in a step; 0 = no limit of its own.
    """
    limit = min(budget, threshold) if threshold else budget
    return min(gap, limit)
