"""Keeps a name for the sum, and returns the other one."""

import torch

from stage1.model.ops import TorchOps as Ops


class TorchOps(Ops):
    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x.float() if residual is None else (x + residual).float()
        mean_square = (total * total).sum(-1, keepdim=True) / total.shape[-1]
        return (total / (mean_square + eps).sqrt()).to(x.dtype) * weight, x
