"""RMS norm, one number at a time, in Python's own 64-bit arithmetic."""

from __future__ import annotations

import math


def rms_norm(row: list[float], weight: list[float], eps: float) -> list[float]:
    """One row: each number over the root of the row's mean square, times its weight."""
    mean_square = sum(value * value for value in row) / len(row)
    scale = 1 / math.sqrt(mean_square + eps)
    return [value * scale * factor for value, factor in zip(row, weight, strict=True)]


def add(x: list[float], residual: list[float] | None) -> list[float]:
    """The residual stream after the layer that computed ``x``."""
    return x if residual is None else [a + b for a, b in zip(x, residual, strict=True)]
