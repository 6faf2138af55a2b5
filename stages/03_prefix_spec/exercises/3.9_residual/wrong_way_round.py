"""The residual is taken of the wrong side: where the drafts give too much.

Where q is larger than p, drafts are thrown away, and enough of them stay. Where q is smaller than p, every draft stays
and they are still too few: there tokens are missing, p - q of each. What is negative counts as nothing.
"""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """From max(q - p, 0)."""
    residual = (draft - target).clamp(min=0.0)
    residual = torch.where(residual.sum(dim=1, keepdim=True) > 0, residual, target)
    reached = residual.double().cumsum(dim=1)
    return (reached <= uniform[:, None] * reached[:, -1:]).sum(dim=1).clamp(max=target.shape[1] - 1)
