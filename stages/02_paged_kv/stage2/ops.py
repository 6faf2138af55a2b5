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
from stage2.kernels.matvec import MAX_TOKENS, matvec
from stage2.kernels.norm import add_rms_norm
from stage2.kernels.skinny_matmul import skinny_matmul

FEW_TOKENS = 16
LARGE = 2048  # rows and columns: a smaller matrix makes too few programs for the matrix units
TALL = 16384  # rows: enough programs however short the rows
TALL_TOKENS = 4  # from so many on, the matrix units win for a tall matrix


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
        num_tokens, num_rows, large = x.shape[0], weight.shape[0], min(weight.shape) >= LARGE
        if not x.is_cuda or not 1 <= num_tokens <= FEW_TOKENS:
            return F.linear(x, weight, bias)
        tall = num_rows >= TALL and TALL_TOKENS <= num_tokens <= MAX_TOKENS
        if num_tokens > 1 and (large or tall) and x.dtype.itemsize == 2:
            return skinny_matmul(x, weight, bias)
        if num_tokens == 1 or (num_tokens <= MAX_TOKENS and not large):
            return matvec(x, weight, bias)
        return F.linear(x, weight, bias)
