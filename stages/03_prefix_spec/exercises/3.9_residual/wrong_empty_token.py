"""A number that lies exactly at the border of two tokens goes to the left one.

With `uniform` = 0 that draws token 0, even where nothing is left of it: an output that the target would never give. The
number 0 does come. A part begins with its left end and stops before its right one: count the ends that are smaller than
the number **or equal** to it (`torch.searchsorted` wants `right=True` for that).
"""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Only the ends below the number are counted."""
    residual = (target - draft).clamp(min=0.0)
    residual = torch.where(residual.sum(dim=1, keepdim=True) > 0, residual, target)
    reached = residual.double().cumsum(dim=1)
    return (reached < uniform[:, None] * reached[:, -1:]).sum(dim=1).clamp(max=target.shape[1] - 1)
