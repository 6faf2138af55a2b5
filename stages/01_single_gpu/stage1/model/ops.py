"""The model's pointwise and matrix operations in plain torch: the oracle of every fused version.

Owns the order of roundings, which is that of the transformers reference: norms run in float32 and are rounded to the
model's dtype before the weight is applied. Does not know layers, caches or ranks.

vLLM: ``vllm/model_executor/layers/layernorm.py``, ``activation.py``, ``linear.py``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stage1.model.linear import linear


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension: [..., dim] → [..., dim] (arXiv:1910.07467).

    Example: x = [3, 4] has the mean square 12.5, so with weights of 1 it becomes [0.849, 1.131].
    """
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


class TorchOps:
    """``Ops`` in torch operations alone, on any device and in any dtype; never writes into its arguments."""

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add to the residual stream and normalise it: both [T, hidden]. The sum is rounded to the model's dtype."""
        total = x if residual is None else residual + x
        return rms_norm(total, weight, eps), total

    def activation(self, gate_up: torch.Tensor) -> torch.Tensor:
        """SwiGLU (arXiv:2002.05202): [T, 2 * inner] → silu(first half) * second half, [T, inner]."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """[T, in] × [out, in]ᵀ → [T, out]."""
        return linear(x, weight, bias)
