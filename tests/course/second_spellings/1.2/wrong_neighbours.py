"""Neighbours, through complex numbers."""

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.complex(cos, sin)[:, None]
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)
