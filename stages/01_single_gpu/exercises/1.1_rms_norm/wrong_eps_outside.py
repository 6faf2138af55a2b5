"""eps is added to the root.

It belongs inside, under the root: ``sqrt(mean square + eps)``. With a mean square of 0.01 and eps of 0.01 the divisor
is 0.141 inside, and 0.110 outside. Checkpoints are trained with one of the two, so it is not a matter of taste.
"""

from __future__ import annotations

import torch

from stage1.model.ops import TorchOps as Reference


class TorchOps(Reference):
    """The divisor is sqrt(mean square) + eps."""

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of the sum, and the sum."""
        total = x if residual is None else residual + x
        wide = total.float()
        wide = wide / (wide.pow(2).mean(-1, keepdim=True).sqrt() + eps)
        return weight * wide.to(x.dtype), total
