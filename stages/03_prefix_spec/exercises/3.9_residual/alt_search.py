"""A distribution first, and then a binary search."""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Divided by its sum, the residual is a distribution, and the number is looked up in its sums."""
    residual = torch.relu(target.double() - draft.double())
    total = residual.sum(dim=1, keepdim=True)
    probs = torch.where(total > 0, residual / total, target.double())
    ends = probs.cumsum(dim=1)
    token = torch.searchsorted(ends, uniform[:, None], right=True)[:, 0]
    return token.clamp(max=target.shape[1] - 1)
