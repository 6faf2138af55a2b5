"""A pair is a complex number, and turning it is a multiplication."""

from __future__ import annotations

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """[T, heads, dim] with ``cos`` and ``sin`` [T, dim / 2] → [T, heads, dim]."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half].float(), x[..., half:].float())  # [T, heads, dim / 2]
    turned = pairs * torch.complex(cos, sin).unsqueeze(1)
    return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)
