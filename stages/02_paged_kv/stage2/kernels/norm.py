"""Residual addition and RMSNorm in one launch.

Owns one pass over the rows: x, residual and weight are read once, the sum and its norm are written once. Does not know
layers.

    total  = x + residual                                   rounded to the model's dtype
    normed = weight * (total / sqrt(mean(total²) + eps))    float32, rounded before the weight and after it

The plain version is ``stage1.model.ops.TorchOps.add_rms_norm``, which makes nine launches of it in
bfloat16; the roundings are the same. vLLM: ``csrc/layernorm_kernels.cu`` (``fused_add_rms_norm``).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

NUM_WARPS = {1024: 4, 2048: 8, 4096: 8, 8192: 16}  # by padded width; narrower rows take 4, wider ones 16


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    out: torch.Tensor | None = None,
    residual_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add ``x`` to the residual stream and normalise the sum: (normed, sum), both [T, hidden] in the dtype of ``x``.

    Without ``out`` and ``residual_out`` both results are new and no argument is written to; but where ``residual`` is
    ``None``, the sum *is* ``x``, returned as it came. Given, they are written and returned; they may be ``x`` or
    ``residual`` themselves (in place), not one and the same tensor.

    Args:
        x: [T, hidden], float32, bfloat16 or float16; rows may lie apart, the numbers of a row may not.
        residual: like ``x``, or ``None`` at the first layer.
        weight: [hidden], in the dtype of ``x``.
        eps: added to the mean square.
        out: [T, hidden], takes the norm.
        residual_out: [T, hidden], takes the sum; only with a ``residual``.

    Raises:
        ValueError: ``residual_out`` was given without a ``residual``.
    """
    if residual is None and residual_out is not None:
        raise ValueError("residual_out was given but residual is None: the sum is x itself, leave residual_out out")
    num_tokens, hidden = x.shape
    normed = torch.empty_like(x) if out is None else out
    before, total = x, x  # without a residual neither is touched: the kernel is compiled without the addition
    if residual is not None:
        before, total = residual, torch.empty_like(x) if residual_out is None else residual_out
    width = triton.next_power_of_2(hidden)
    _add_rms_norm_kernel[(num_tokens,)](
        x, before, weight, normed, total,
        x.stride(0), before.stride(0), normed.stride(0), total.stride(0),
        eps, hidden=hidden, width=width, add=residual is not None,
        num_warps=NUM_WARPS.get(width, 4 if width < 1024 else 16),
    )  # fmt: skip
    return normed, total


@triton.jit  # type: ignore[untyped-decorator]
def _add_rms_norm_kernel(
    x: tl.tensor,  # [T, hidden], as are all but the weight
    residual: tl.tensor,
    weight: tl.tensor,  # [hidden]
    normed_out: tl.tensor,
    total_out: tl.tensor,
    x_stride: int,
    residual_stride: int,
    normed_stride: int,
    total_stride: int,
    eps: float,
    hidden: tl.constexpr,
    width: tl.constexpr,  # hidden padded to a power of two
    add: tl.constexpr,
) -> None:
    """A program is a row. Every load comes before the store that may overwrite it: that is what in place needs."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, width)
    real = column < hidden
    total = tl.load(x + row * x_stride + column, mask=real, other=0.0)  # [width]
    dtype = total.dtype
    if add:
        before = tl.load(residual + row * residual_stride + column, mask=real, other=0.0)
        total = (before.to(tl.float32) + total.to(tl.float32)).to(dtype)
        tl.store(total_out + row * total_stride + column, total, mask=real)
    wide = total.to(tl.float32)
    mean_square = tl.sum(wide * wide, axis=0) / hidden
    normed = (wide * tl.rsqrt(mean_square + eps)).to(dtype)
    scale = tl.load(weight + column, mask=real, other=0.0)
    scaled = normed.to(tl.float32) * scale.to(tl.float32)
    tl.store(normed_out + row * normed_stride + column, scaled.to(dtype), mask=real)
