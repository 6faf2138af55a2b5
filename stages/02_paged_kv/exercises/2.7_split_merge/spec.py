"""The average over all splits, in decimal numbers that never overflow."""

from __future__ import annotations

from decimal import Decimal


def join(parts: list[list[float]], lse: list[float]) -> list[float]:
    """``parts``: each split's average. A split counts as much as its softmax weights added up to: 2 to the ``lse``."""
    weights = [Decimal(2) ** Decimal(x) if x > -1e6 else Decimal(0) for x in lse]
    return [
        float(sum(w * Decimal(part[d]) for w, part in zip(weights, parts, strict=True)) / sum(weights))
        for d in range(len(parts[0]))
    ]
