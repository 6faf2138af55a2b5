"""Norms are computed as a length, and rounded once, after the weight."""

from __future__ import annotations

import torch

from stage1.model.ops import TorchOps as Reference


class TorchOps(Reference):
    """The mean square is the squared length over the number of columns."""

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of the sum, and the sum."""
        total = x.clone() if residual is None else x + residual
        wide = total.to(torch.float32)
        mean_square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True) ** 2 / wide.shape[-1]
        return (wide / (mean_square + eps).sqrt() * weight.float()).to(x.dtype), total
