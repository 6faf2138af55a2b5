"""The sum is made in the memory of the residual stream, as fused kernels do it."""

import torch.nn.functional as F
from stage1.model.ops import TorchOps as Reference


class TorchOps(Reference):
    """Torch has the norm too."""

    def add_rms_norm(self, x, residual, weight, eps):
        if residual is not None:
            x = residual.add_(x)
        return F.rms_norm(x.float(), x.shape[-1:], weight.float(), eps).to(x.dtype), x
