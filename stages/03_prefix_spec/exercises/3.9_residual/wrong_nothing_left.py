"""Where p and q are the same, nothing is left, and the last token is drawn from it.

Such a draft stays with probability 1, so the case should never come; but the probabilities are rounded, and with
rounding it does come. The sum of the residual is then 0, and there is nothing to draw from. Ask for it, and draw from p
there, which is right as exactly as p and q are the same.
"""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """From max(p - q, 0), whatever is left of it."""
    reached = (target - draft).clamp(min=0.0).double().cumsum(dim=1)
    return (reached <= uniform[:, None] * reached[:, -1:]).sum(dim=1).clamp(max=target.shape[1] - 1)
