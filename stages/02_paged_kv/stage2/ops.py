"""The model's operations with fused Triton kernels in place of chains of torch launches.

Owns the choice of kernel for each operation of the socket. Does not know layers, caches or ranks.

A layer's two norms and its activation are one launch each, three instead of twenty. Matrix products stay with the
vendor's library, but for those of a few tokens: they are bound by reading the weights, and kernels of their own come
nearer to the memory's bandwidth. ``stage1.model.ops.TorchOps`` is the plain version.

vLLM: ``vllm/model_executor/layers/layernorm.py``, ``activation.py``, ``linear.py``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stage2.kernels.activation import silu_and_mul
from stage2.kernels.few_tokens import LARGE, choose_few_tokens
from stage2.kernels.matvec import MAX_TOKENS, MatvecTile, matvec
from stage2.kernels.norm import add_rms_norm
from stage2.kernels.skinny_matmul import skinny_matmul

FEW_TOKENS = 16  # from more on, the library takes all


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
        num_tokens, large, two_bytes = x.shape[0], min(weight.shape) >= LARGE, x.dtype.itemsize == 2
        if not x.is_cuda or not 1 <= num_tokens <= FEW_TOKENS:
            return F.linear(x, weight, bias)
        if num_tokens == 1:
            return matvec(x, weight, bias)
        if large and two_bytes:
            return skinny_matmul(x, weight, bias)
        if large or num_tokens > MAX_TOKENS:
            return F.linear(x, weight, bias)
        if not two_bytes:  # in full precision the matrix units are slow
            return matvec(x, weight, bias)
        tile = choose_few_tokens(*weight.shape, num_tokens)
        if tile is None:
            return F.linear(x, weight, bias)
        if isinstance(tile, MatvecTile):
            return matvec(x, weight, bias, tile=tile)
        return skinny_matmul(x, weight, bias, tile=tile)
