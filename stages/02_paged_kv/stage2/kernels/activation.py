"""SiLU of the gate times the up projection, in one launch.

Owns the product of the two halves of the merged projection. Does not know layers.

    out = silu(gate) * up,   silu(x) = x / (1 + exp(-x))    float32, rounded before the product and after it

The plain version is ``stage1.model.ops.TorchOps.activation`` with its two launches; the roundings are the same.
vLLM: ``csrc/activation_kernels.cu`` (``silu_and_mul``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024  # columns a program: rows are cut, so that one decode token still occupies several multiprocessors
NUM_WARPS = 4


def silu_and_mul(gate_up: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """SwiGLU (arXiv:2002.05202): [T, 2 * inner] = [gate | up] → [T, inner] in the same dtype.

    Args:
        gate_up: float32, bfloat16 or float16; rows may lie apart, the numbers of a row may not.
        out: [T, inner] to write into; new when ``None``. It must not overlap ``gate_up``.

    Raises:
        ValueError: the width of ``gate_up`` is odd.
    """
    num_tokens, width = gate_up.shape
    if width % 2:
        raise ValueError(f"gate_up is {width:,} wide, which has no halves: merge a gate and an up of equal width")
    inner = width // 2
    product = gate_up.new_empty(num_tokens, inner) if out is None else out
    _silu_and_mul_kernel[(num_tokens, triton.cdiv(inner, BLOCK))](
        gate_up, product, gate_up.stride(0), product.stride(0), inner, columns=BLOCK, num_warps=NUM_WARPS
    )
    return product


@triton.jit  # type: ignore[untyped-decorator]
def _silu_and_mul_kernel(
    gate_up: tl.tensor,  # [T, 2 * inner]
    out: tl.tensor,  # [T, inner]
    in_stride: int,
    out_stride: int,
    inner: int,
    columns: tl.constexpr,
) -> None:
    """A program is ``columns`` numbers of a row of the output."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    real = column < inner
    gate = tl.load(gate_up + row * in_stride + column, mask=real, other=0.0)  # [columns]
    up = tl.load(gate_up + row * in_stride + inner + column, mask=real, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    product = silu.to(tl.float32) * up.to(tl.float32)
    tl.store(out + row * out_stride + column, product.to(gate.dtype), mask=real)
