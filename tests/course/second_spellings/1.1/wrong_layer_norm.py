"""Layer norm, by its name in torch."""

import torch
import torch.nn.functional as F

from stage1.model.ops import TorchOps as Ops


class TorchOps(Ops):
    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        stream = x if residual is None else x + residual
        normed = F.layer_norm(stream.float(), stream.shape[-1:], None, None, eps)
        return (normed * weight.float()).to(x.dtype), stream
