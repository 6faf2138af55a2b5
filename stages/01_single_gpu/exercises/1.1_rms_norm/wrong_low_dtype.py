"""The mean square is computed in the dtype of the model.

Go to float32 before you square: the largest float16 is 65,504, so the square of 300 is infinite there, and everything
divided by its root is 0. In bfloat16 nothing overflows, but a sum of hundreds of squares keeps only three digits.
Convert first (``x.float()``), and back at the end.
"""

from __future__ import annotations

import torch

from stage1.model.ops import TorchOps as Reference


class TorchOps(Reference):
    """Never leaves the dtype of x."""

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of the sum, and the sum."""
        total = x if residual is None else residual + x
        scale = torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + eps)
        return weight * (total * scale), total
