"""The model's pointwise and matrix operations in plain torch: the oracle of every fused version.

Owns the order of roundings, which is that of the transformers reference: norms run in float32 and are rounded to the
model's dtype before the weight is applied. Does not know layers, caches or ranks.

vLLM: ``vllm/model_executor/layers/layernorm.py``, ``activation.py``, ``linear.py``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

FEW_ROWS = 8  # up to here a CPU computes a linear layer the other way round


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
        if x.device.type == "cpu" and x.dtype == torch.float32 and 0 < x.shape[0] <= FEW_ROWS:
            return _few_rows(x, weight, bias)
        return F.linear(x, weight, bias)


def _few_rows(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The same product with the operands exchanged, ``(weight @ xᵀ)ᵀ``, and one row computed as two.

    The CPU's matrix library splits the rows of its *first* operand over the cores, and uses one core for a single row.
    Exchanged, the linear layers of SmolLM2 take about half the time at batch 1 and two thirds at batch 8 on two cores;
    ``measure_cpu.py`` measures both ways.
    """
    rows = x if x.shape[0] > 1 else torch.cat((x, x))
    out = torch.mm(weight, rows.t()).t()[: x.shape[0]].contiguous()  # [T, out]
    return out if bias is None else out + bias
