"""Normalises first and adds in place."""

import torch
import torch.nn.functional as F

from stage1.model.ops import TorchOps as Ops


class TorchOps(Ops):
    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        normed = F.rms_norm(x.float(), x.shape[-1:], weight.float(), eps).to(x.dtype)
        if residual is None:
            return normed, x
        residual += x
        return normed, residual
