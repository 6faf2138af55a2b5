"""Rounded tables, the form with a rotated copy."""

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    exchanged = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    cos, sin = (torch.cat((table, table), dim=-1).type_as(x).unsqueeze(1) for table in (cos, sin))
    return x * cos + exchanged * sin
