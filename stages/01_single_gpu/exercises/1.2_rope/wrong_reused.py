"""The second half is computed from the first half's new value.

Both halves of the result need the halves as they were. A name that is assigned again, or an operation in place, loses
the old value one line too early. Keep both inputs until both results are there.
"""

from __future__ import annotations

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[T, heads, dim] with ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim]."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    first = first * cos - second * sin
    second = second * cos + first * sin
    return torch.cat((first, second), dim=-1).to(x.dtype)
