"""Squares by a product, in the dtype that came."""

import torch

from stage1.model.ops import TorchOps as Ops


class TorchOps(Ops):
    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if residual is not None:
            x = x + residual
        mean_square = torch.mean(x * x, dim=-1, keepdim=True)
        return x / torch.sqrt(mean_square + eps) * weight, x
