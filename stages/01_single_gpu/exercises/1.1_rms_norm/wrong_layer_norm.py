"""An RMS norm subtracts the mean first.

That is layer norm. RMS norm leaves the mean where it is: it only divides each row by the root of the mean of its
squares. Models train as well without the subtraction, and it costs one pass less over the row.
"""

from __future__ import annotations

import torch

from stage1.model.ops import TorchOps as Reference


class TorchOps(Reference):
    """Layer norm."""

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of the sum, and the sum."""
        total = x if residual is None else residual + x
        wide = total.float()
        wide = wide - wide.mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return weight * wide.to(x.dtype), total
