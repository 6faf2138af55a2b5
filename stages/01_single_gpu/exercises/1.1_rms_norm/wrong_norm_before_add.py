"""Only what the layer computed is normalised.

First add, then normalise: the next layer reads the norm of the whole residual stream, not of the last addition to it.
The norm of ``x`` alone would throw away everything that the earlier layers wrote.
"""

from __future__ import annotations

import torch

from stage1.model.ops import TorchOps as Reference
from stage1.model.ops import rms_norm


class TorchOps(Reference):
    """The stream is added up, and not looked at."""

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The norm of the sum, and the sum."""
        return rms_norm(x, weight, eps), x if residual is None else residual + x
