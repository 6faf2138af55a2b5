"""The model's operations with fused Triton kernels in place of chains of torch launches.

Owns the choice of kernel for each operation of the socket. Does not know layers, caches or ranks.

A layer's two norms and its activation are one launch each, three instead of twenty. Matrix products stay with the
vendor's library, but for one token, and for a few tokens and large weights: those are bound by reading the weights, and
kernels of their own come nearer to the memory's bandwidth. ``stage1.model.ops.TorchOps`` is the plain version.

vLLM: ``vllm/model_executor/layers/layernorm.py``, ``activation.py``, ``linear.py``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stage2.kernels.activation import silu_and_mul
from stage2.kernels.matvec import matvec
from stage2.kernels.norm import add_rms_norm
from stage2.kernels.skinny_matmul import skinny_matmul

FEW_TOKENS = 16
LARGE = 2048  # rows and columns: a smaller matrix makes too few programs


class TritonOps:
    """``Ops`` on a GPU, in float32, bfloat16 or float16; never writes into its arguments.

    Every operation can be captured in a CUDA graph: launches depend on shapes alone.
    """

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add to the residual stream and normalise it: both [T, hidden]. The sum is rounded to the model's dtype."""
        return add_rms_norm(x, residual, weight, eps)

    def activation(self, gate_up: torch.Tensor) -> torch.Tensor:
        """SwiGLU: [T, 2 * inner] → silu(first half) * second half, [T, inner]."""
        return silu_and_mul(gate_up)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """[T, in] × [out, in]ᵀ (+ [out]) → [T, out]."""
        num_tokens = x.shape[0]
        if num_tokens == 1 and x.is_cuda:
            return matvec(x, weight, bias)
        if 1 < num_tokens <= FEW_TOKENS and min(weight.shape) >= LARGE and x.is_cuda and x.dtype.itemsize == 2:
            return skinny_matmul(x, weight, bias)
        return F.linear(x, weight, bias)
