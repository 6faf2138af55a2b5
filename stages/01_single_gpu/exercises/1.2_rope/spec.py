"""Rotation, slowly: one pair of numbers at a time, in Python's own floats."""

from __future__ import annotations

import torch


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Every pair turned: ``x`` [T, heads, dim], ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim]."""
    result = torch.empty_like(x)
    num_tokens, heads, dim = x.shape
    for token in range(num_tokens):
        for head in range(heads):
            for pair in range(dim // 2):
                a, b = float(x[token, head, pair]), float(x[token, head, pair + dim // 2])
                c, s = float(cos[token, pair]), float(sin[token, pair])
                result[token, head, pair] = a * c - b * s
                result[token, head, pair + dim // 2] = b * c + a * s
    return result
