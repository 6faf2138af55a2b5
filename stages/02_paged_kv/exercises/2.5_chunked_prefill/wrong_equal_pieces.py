"""The prompt is cut into equal pieces.

Equal pieces look tidy, and leave room in the step that others may not need: the prompt is ready no sooner, often
later. Take all that fits now; in the last step the piece is as small as it happens to be.
"""

from __future__ import annotations


def chunk(gap: int, budget: int, threshold: int) -> int:
    """As many steps as needed, all alike."""
    limit = min(budget, threshold) if threshold else budget
    steps = -(-gap // limit)
    return -(-gap // steps)
