"""The random number is compared with sums that do not end at 1.

All of max(p - q, 0) together is the probability that a draft is rejected, often far less than 1. A number in [0, 1)
then lies behind its end most of the time, and the last token gets what is not its own. Divide by the sum, or stretch
the number by it.
"""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """From max(p - q, 0) as it is."""
    residual = (target - draft).clamp(min=0.0)
    residual = torch.where(residual.sum(dim=1, keepdim=True) > 0, residual, target)
    reached = residual.double().cumsum(dim=1)
    return (reached <= uniform[:, None]).sum(dim=1).clamp(max=target.shape[1] - 1)
