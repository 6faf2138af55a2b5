"""A linear layer for a few tokens: a small batch of decodes, or the drafts of one request.

Owns the kernel and the table that says how to cut a matrix of a given shape. Does not know layers or ranks; a single
token has a kernel of its own, ``matvec``, and many tokens are the vendor's library's matter.

    out[t, n] = sum_k x[t, k] * weight[n, k] (+ bias[n])        summed in float32, rounded once

Up to some 64 tokens the time still goes into reading the weights, so a program is cut for that: ``rows`` outputs of all
tokens, over tiles of ``columns`` numbers of which several are on their way at once. The tokens are padded to the 16
rows that the matrix units want; the padding is computed, and neither read nor written.

On an H200, at 8 tokens, the layers of an 8B model took 4 to 10 % less time than in cuBLAS; at 64 tokens none did.
Small matrices want many small programs: with 8 rows and a warp each, 960 × 576 took 2.8 µs, and 3.7 in cuBLAS.

The plain version is ``torch.nn.functional.linear``. vLLM: ``vllm/model_executor/layers/utils.py`` dispatches to such
kernels on AMD GPUs (``csrc/rocm/skinny_gemms.cu``).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from stage2.kernels.matvec import check_product
from stage2.kernels.split_attention import INTERPRETED

MAX_TOKENS = 64


class SkinnyTile(NamedTuple):
    """How a program is cut: powers of two, at least 8 rows and 16 columns, which is what the matrix units take."""

    rows: int  # outputs a program
    columns: int  # numbers of each row in a tile
    num_warps: int
    num_stages: int  # tiles on their way


# Most tokens, most rows of the matrix → tile; the first that fits is taken. For large matrices; smaller ones have tiles
# in ``few_tokens``.
TILES: tuple[tuple[int, int, SkinnyTile], ...] = (
    (16, 4096, SkinnyTile(32, 256, 4, 5)),
    (16, 8192, SkinnyTile(16, 256, 2, 4)),
    (16, 2**31, SkinnyTile(64, 128, 4, 4)),
    (MAX_TOKENS, 2**31, SkinnyTile(64, 128, 4, 4)),
)


def choose_tile(num_tokens: int, num_rows: int) -> SkinnyTile:
    """The tile for ``num_tokens`` tokens and a matrix of ``num_rows`` rows."""
    return next(tile for max_tokens, max_rows, tile in TILES if num_tokens <= max_tokens and num_rows <= max_rows)


def skinny_matmul(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    *,
    tile: SkinnyTile | None = None,
) -> torch.Tensor:
    """[T, K] × [N, K]ᵀ (+ [N]) → [T, N] in the dtype of ``x``. No host synchronisation; may be captured.

    Args:
        x: [T, K], T from 1 to 64, bfloat16 or float16 (float32 works in full precision, slowly); rows may lie apart,
            the numbers of a row may not.
        weight: [N, K] in the dtype of ``x``, likewise.
        bias: [N], contiguous, in the dtype of ``x``.
        out: [T, N], contiguous, takes the result; made when ``None``.
        tile: how the work is cut; ``None`` looks it up in ``TILES``.

    Raises:
        ValueError: too many tokens, or shapes, dtypes or strides do not fit each other.
    """
    (num_tokens, width), num_rows = x.shape, weight.shape[0]
    out = x.new_empty(num_tokens, num_rows) if out is None else out
    check_product(x, weight, bias, out, MAX_TOKENS)
    rows, columns, num_warps, num_stages = choose_tile(num_tokens, num_rows) if tile is None else tile
    _skinny_kernel[(triton.cdiv(num_rows, rows),)](
        *(x, weight, bias, out, num_tokens, num_rows, x.stride(0), weight.stride(0)),
        width=width,
        tokens=max(16, triton.next_power_of_2(num_tokens)),
        rows=rows,
        columns=columns,
        num_warps=num_warps,
        num_stages=num_stages,
    )
    return out


@triton.jit(do_not_specialize=["num_tokens"])  # type: ignore[untyped-decorator]
def _skinny_kernel(
    x: tl.tensor,  # [T, K]
    weight: tl.tensor,  # [N, K]
    bias: tl.tensor | None,  # [N]
    out: tl.tensor,  # [T, N]
    num_tokens: int,
    num_rows: int,
    x_stride: int,
    row_stride: int,
    width: tl.constexpr,  # K
    tokens: tl.constexpr,  # T padded
    rows: tl.constexpr,
    columns: tl.constexpr,
) -> None:
    """A program is ``rows`` outputs of every token."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    token = tl.arange(0, tokens)
    column = tl.arange(0, columns)
    real_token = (token < num_tokens)[:, None]
    # Rows beyond the last read the last one again, so that whole tiles need no mask. 64 bits: see ``matvec``.
    source = weight + tl.minimum(row, num_rows - 1).to(tl.int64)[:, None] * row_stride + column[None, :]
    x_source = x + token[:, None] * x_stride + column[None, :]
    total = tl.zeros([tokens, rows], tl.float32)
    whole: tl.constexpr = width // columns * columns
    for start in range(0, whole, columns):
        numbers = tl.load(source + start)  # [rows, columns]
        total = _dot(tl.load(x_source + start, mask=real_token, other=0.0), numbers, total)
    if whole < width:
        real = (column < width - whole)[None, :]
        numbers = tl.load(source + whole, mask=real, other=0.0)
        total = _dot(tl.load(x_source + whole, mask=real_token & real, other=0.0), numbers, total)
    if bias is not None:
        total += tl.load(bias + row, mask=row < num_rows, other=0.0).to(tl.float32)[None, :]
    target = out + token[:, None] * num_rows + row[None, :]
    tl.store(target, total.to(out.dtype.element_ty), mask=real_token & (row < num_rows)[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _dot(x: tl.tensor, numbers: tl.tensor, total: tl.tensor) -> tl.tensor:
    """total + x · numbersᵀ, float32 as such; the interpreter multiplies no bfloat16."""
    if INTERPRETED:
        x, numbers = x.to(tl.float32), numbers.to(tl.float32)
    return tl.dot(x, tl.trans(numbers), total, input_precision="ieee")
