"""In place, on views of one tensor."""

import torch


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    result = x.float().clone()
    first, second = result.chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    first.mul_(cos).sub_(second * sin)
    second.mul_(cos).add_(first * sin)
    return result.to(x.dtype)
