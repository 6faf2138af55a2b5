"""The pairs turn clockwise: the minus stands in the second half.

Queries and keys turned backwards together give the same scores as before, so a whole model may look right; but a key
that was cached by a right version no longer fits. Turn (1, 0) by a quarter: it must become (0, 1), not (0, -1).
"""

from __future__ import annotations

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[T, heads, dim] with ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim]."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((first * cos + second * sin, second * cos - first * sin), dim=-1).to(x.dtype)
