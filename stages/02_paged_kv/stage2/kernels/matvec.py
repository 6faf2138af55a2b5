"""A linear layer for one to eight tokens: a matrix times a few vectors, which is hardly more than reading it once.

Owns the kernels and the table that says how to cut a matrix of a given shape. Does not know layers or ranks.

    out[t, n] = sum_k weight[n, k] * x[t, k] (+ bias[n])        summed in float32, rounded once

A program takes ``rows`` neighbouring outputs and walks over their rows ``columns`` numbers at a time. Products are
summed for each column apart and meet once, at the end. What counts is how many bytes are on their way at once:

    small matrices   few programs and short rows: take a row in one or two bites, so that all loads leave together
    large matrices   many programs: several rows each, so that reading x again costs little

A matrix library picks tiles for many tokens and leaves a third of the bandwidth unused here. On an H200, 960 × 576 took
1.9 µs where cuBLAS took 3.7, and 4,096 × 4,096 took 9.5 where cuBLAS took 12.6 (``measure_kernels.py`` measures both).

With more tokens (a small batch of decodes, the drafts of one request) a number of the matrix is loaded once and
multiplied with every token's. The multiplications of ordinary cores then begin to count: from many rows or tokens on
``skinny_matmul``, which uses the matrix units, is faster. ``few_tokens`` says which of the two a matrix gets.

The plain version is ``torch.nn.functional.linear``. vLLM: ``vllm/model_executor/layers/utils.py`` dispatches to such
kernels on AMD GPUs (``csrc/rocm/skinny_gemms.cu``).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class MatvecTile(NamedTuple):
    """How a program is cut: powers of two of rows and of columns."""

    rows: int  # outputs a program
    columns: int  # numbers of each row that are loaded at once
    num_warps: int
    num_stages: int = 1  # 2 or more: loads run this many steps ahead, through shared memory


MAX_TOKENS = 8

# Tokens, padded to a power of two → widest row (columns of the matrix) and most rows that an entry serves → tile; the
# first that fits is taken. From 2 tokens on: 256 columns a warp or a multiple (see ``_few_tokens_kernel``); they serve
# float32 and whoever names no tile, and come from ``measure_kernels.py --tune few`` on an H200, in bfloat16.
TILES: dict[int, tuple[tuple[int, int, MatvecTile], ...]] = {
    1: (
        (768, 2048, MatvecTile(1, 512, 1)),
        (768, 16384, MatvecTile(2, 1024, 4)),
        (768, 2**31, MatvecTile(4, 512, 1)),
        (1024, 2**31, MatvecTile(2, 1024, 4)),
        (1536, 2**31, MatvecTile(1, 512, 1)),
        (8192, 2**31, MatvecTile(1, 1024, 8)),
        (2**31, 2**31, MatvecTile(1, 256, 1)),
    ),
    2: (
        (1024, 2**31, MatvecTile(2, 512, 1)),
        (2**31, 2**31, MatvecTile(1, 1024, 4)),
    ),
    4: (
        (2**31, 2048, MatvecTile(2, 1024, 4)),
        (1024, 2**31, MatvecTile(4, 256, 1)),
        (2**31, 2**31, MatvecTile(2, 1024, 4)),
    ),
    8: (
        (1536, 2048, MatvecTile(2, 1024, 4)),
        (1024, 2**31, MatvecTile(4, 256, 1)),
        (2**31, 2**31, MatvecTile(4, 1024, 4)),
    ),
}


def choose_tile(num_rows: int, width: int, num_tokens: int = 1) -> MatvecTile:
    """The tile for a matrix [num_rows, width]; a row is never cut wider than it is."""
    table = TILES[triton.next_power_of_2(num_tokens)]
    tile = next(tile for max_width, max_rows, tile in table if width <= max_width and num_rows <= max_rows)
    return tile._replace(columns=min(tile.columns, max(16, triton.next_power_of_2(width))))


def matvec(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    *,
    tile: MatvecTile | None = None,
) -> torch.Tensor:
    """[T, K] × [N, K]ᵀ (+ [N]) → [T, N] in the dtype of ``x``. No host synchronisation; may be captured.

    Float32 is multiplied as float32, whatever precision torch's own matrix products are set to. A token's result does
    not depend on its neighbours; another tile, which another number of tokens may bring, can change its last bit.

    Args:
        x: [T, K], T from 1 to 8, float32, bfloat16 or float16; rows may lie apart, the numbers of a row may not.
        weight: [N, K] in the dtype of ``x``, likewise.
        bias: [N], contiguous, in the dtype of ``x``.
        out: [T, N], contiguous, takes the result; made when ``None``.
        tile: how the work is cut; ``None`` looks it up in ``TILES``.

    Raises:
        ValueError: too many tokens, or shapes, dtypes or strides do not fit each other.
    """
    num_tokens, (num_rows, width) = x.shape[0], weight.shape
    out = x.new_empty(num_tokens, num_rows) if out is None else out
    check_product(x, weight, bias, out, MAX_TOKENS)
    tile = choose_tile(num_rows, width, num_tokens) if tile is None else tile
    grid = (triton.cdiv(num_rows, tile.rows),)
    sizes = {"width": width, "rows": tile.rows, "columns": tile.columns, "stages": tile.num_stages}
    if num_tokens == 1:
        _matvec_kernel[grid](x, weight, bias, out, num_rows, weight.stride(0), **sizes, num_warps=tile.num_warps)
        return out
    _few_tokens_kernel[grid](
        *(x, weight, bias, out, num_tokens, num_rows, x.stride(0), weight.stride(0)),
        **sizes,
        tokens=triton.next_power_of_2(num_tokens),
        bite=16 // x.element_size(),
        num_warps=tile.num_warps,
    )
    return out


def check_product(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor, max_tokens: int
) -> None:
    """Refuse what the kernel would read or write wrongly; it looks at shapes alone, which costs no synchronisation."""
    (num_tokens, width), num_rows = x.shape, weight.shape[0]
    if not 1 <= num_tokens <= max_tokens:
        raise ValueError(f"x has {num_tokens} tokens; this kernel takes 1 to {max_tokens}: use F.linear")
    if weight.shape[1] != width:
        raise ValueError(f"x is {tuple(x.shape)}; this weight takes rows of {weight.shape[1]:,}: pass its own layer's")
    if weight.stride(1) != 1 or x.stride(1) != 1:
        raise ValueError(f"weight has strides {weight.stride()}, x {x.stride()}; rows must be dense: call contiguous()")
    if bias is not None and (bias.shape != (num_rows,) or not bias.is_contiguous()):
        raise ValueError(f"bias is {tuple(bias.shape)}; it must be ({num_rows:,},) and contiguous")
    if out.shape != (num_tokens, num_rows) or not out.is_contiguous():
        raise ValueError(f"out is {tuple(out.shape)}; it must be ({num_tokens}, {num_rows:,}) and contiguous")
    dtypes = {t.dtype for t in (x, weight, bias, out) if t is not None}
    if len(dtypes) > 1:
        raise ValueError(f"x, weight, bias and out have dtypes {sorted(map(str, dtypes))}; they must be the same")


@triton.jit  # type: ignore[untyped-decorator]
def _matvec_kernel(
    x: tl.tensor,  # [K]
    weight: tl.tensor,  # [N, K]
    bias: tl.tensor | None,  # [N]
    out: tl.tensor,  # [N]
    num_rows: int,
    row_stride: int,
    width: tl.constexpr,  # K
    rows: tl.constexpr,
    columns: tl.constexpr,
    stages: tl.constexpr,
) -> None:
    """One token. A program is ``rows`` outputs. Rows beyond the last read the last one again: no mask in the loop."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    column = tl.arange(0, columns)
    # 64 bits: a vocabulary of 152k rows of 16k numbers has more than 2^31.
    source = weight + tl.minimum(row, num_rows - 1).to(tl.int64)[:, None] * row_stride + column[None, :]
    total = tl.zeros([rows, columns], tl.float32)
    whole: tl.constexpr = width // columns * columns
    for start in tl.range(0, whole, columns, num_stages=stages):
        numbers = tl.load(source + start)  # [rows, columns]
        total += numbers.to(tl.float32) * tl.load(x + start + column).to(tl.float32)[None, :]
    if whole < width:
        real = column < width - whole
        numbers = tl.load(source + whole, mask=real[None, :], other=0.0)
        total += numbers.to(tl.float32) * tl.load(x + whole + column, mask=real, other=0.0).to(tl.float32)[None, :]
    result = tl.sum(total, 1)  # [rows]
    if bias is not None:
        result += tl.load(bias + row, mask=row < num_rows, other=0.0).to(tl.float32)
    tl.store(out + row, result.to(out.dtype.element_ty), mask=row < num_rows)


@triton.jit(do_not_specialize=["num_tokens"])  # type: ignore[untyped-decorator]
def _few_tokens_kernel(
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
    bite: tl.constexpr,  # numbers that a thread loads at once: 16 bytes
    stages: tl.constexpr,
) -> None:
    """A program is ``rows`` outputs of every token; tokens and rows beyond the last read the last one again.

    Products are summed over a bite before they join the total: within a thread, and an eighth of the registers. With
    a bite for every lane along the columns (256 two-byte numbers a warp, or a multiple) the tiles of x and of the
    matrix are spread over threads alike; otherwise one of them takes the way through shared memory at each step.
    """
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    token = tl.arange(0, tokens)
    column = (tl.arange(0, columns // bite)[:, None] * bite + tl.arange(0, bite)[None, :])[None, None, :, :]
    # 64 bits: see ``_matvec_kernel``.
    source = weight + tl.minimum(row, num_rows - 1).to(tl.int64)[None, :, None, None] * row_stride + column
    x_source = x + tl.minimum(token, num_tokens - 1).to(tl.int64)[:, None, None, None] * x_stride + column
    total = tl.zeros([tokens, rows, columns // bite], tl.float32)
    whole: tl.constexpr = width // columns * columns
    for start in tl.range(0, whole, columns, num_stages=stages):
        numbers = tl.load(source + start)  # [1, rows, columns / bite, bite]
        total += tl.sum(numbers.to(tl.float32) * tl.load(x_source + start).to(tl.float32), 3)
    if whole < width:
        real = column < width - whole
        numbers = tl.load(source + whole, mask=real, other=0.0)
        total += tl.sum(numbers.to(tl.float32) * tl.load(x_source + whole, mask=real, other=0.0).to(tl.float32), 3)
    result = tl.sum(total, 2)  # [tokens, rows]
    if bias is not None:
        result += tl.load(bias + row, mask=row < num_rows, other=0.0).to(tl.float32)[None, :]
    target = out + token[:, None] * num_rows + row[None, :]
    tl.store(target, result.to(out.dtype.element_ty), mask=(token < num_tokens)[:, None] & (row < num_rows)[None, :])
