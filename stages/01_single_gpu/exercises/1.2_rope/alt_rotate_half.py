"""The form of Hugging Face's models: the tables doubled, and a copy of x with its halves exchanged and one negated."""

from __future__ import annotations

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[T, heads, dim] with ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim]."""
    wide = x.to(torch.float32)
    half = x.shape[-1] // 2
    exchanged = torch.cat((-wide[..., half:], wide[..., :half]), dim=-1)
    cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)  # [T, dim]
    return (wide * cos.unsqueeze(1) + exchanged * sin.unsqueeze(1)).to(x.dtype)
