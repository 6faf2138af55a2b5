"""The model's operations with fused Triton kernels in place of chains of torch launches.

Owns the choice of kernel for each operation of the socket. Does not know layers, caches or ranks.

A layer's two norms and its activation are one launch each, three instead of twenty; matrix products stay with the
vendor's library. ``stage1.model.ops.TorchOps`` is the plain version.

vLLM: ``vllm/model_executor/layers/layernorm.py``, ``activation.py``, ``linear.py``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stage2.kernels.activation import silu_and_mul
from stage2.kernels.norm import add_rms_norm


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
        return F.linear(x, weight, bias)
