"""Backwards, through a rotated copy whose other half is negated."""

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    wide, half = x.float(), x.shape[-1] // 2
    exchanged = torch.cat((wide[..., half:], -wide[..., :half]), dim=-1)
    cos, sin = torch.cat((cos, cos), dim=-1)[:, None], torch.cat((sin, sin), dim=-1)[:, None]
    return (wide * cos + exchanged * sin).to(x.dtype)
