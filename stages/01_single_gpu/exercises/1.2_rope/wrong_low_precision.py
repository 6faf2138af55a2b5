"""The products are computed in the model's dtype.

In bfloat16 a number has three decimal digits. Two products that nearly cancel leave only their rounding errors, and
these differ from every other engine's. Convert x to float32 first and convert the result back once, at the end.
"""

from __future__ import annotations

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[T, heads, dim] with ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None].to(x.dtype), sin[:, None].to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
