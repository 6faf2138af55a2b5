"""eps beside a length."""

import torch

from stage1.model.ops import TorchOps as Ops


class TorchOps(Ops):
    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        stream = x if residual is None else x + residual
        wide = stream.double()
        root = torch.linalg.vector_norm(wide, dim=-1, keepdim=True) / wide.shape[-1] ** 0.5
        return (wide / (root + eps)).to(x.dtype) * weight, stream
