"""Joins the partial results of attention that was computed in several pieces of the key range.

Owns the rule by which a request's keys are cut into splits, on the device, and the kernel that joins the pieces. Knows
nothing of pages, queries or keys: it sees only weighted sums and the logarithms of their weights.

Each split s leaves its own softmax average ``o_s`` [dim] and ``lse_s`` = log2(sum of 2^score over its keys). Then

    out = sum_s 2^(lse_s - m) o_s / sum_s 2^(lse_s - m)        with m = max_s lse_s

is the average over all keys. A split of which a query sees nothing has ``lse_s = EMPTY``, a finite number far below
every score: minus infinity would give not-a-number in ``lse_s - m``.

vLLM: ``attention/ops/triton_decode_attention.py`` (stage 2), ``attention/ops/merge_attn_states.py``.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

# A split covers at least so many tiles unless a launch says more: a short request is not cut into crumbs.
MIN_TILES = 2
EMPTY: tl.constexpr = tl.constexpr(-1.0e30)


@triton.jit  # type: ignore[untyped-decorator]
def tiles_per_split(num_tiles: tl.tensor, num_splits: tl.constexpr, min_tiles: tl.constexpr) -> tl.tensor:
    """Tiles that each split of a request takes: split s has the tiles from s times this number on."""
    return tl.maximum((num_tiles + num_splits - 1) // num_splits, min_tiles)


@triton.jit  # type: ignore[untyped-decorator]
def tokens_of(query_start: tl.tensor, request: tl.tensor, ragged: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """First token of a request and how many it has, 64 and 32 bits; one each, in order, unless ragged."""
    first = request.to(tl.int64)
    number = 1
    if ragged:
        first = tl.load(query_start + request).to(tl.int64)
        number = (tl.load(query_start + request + 1).to(tl.int64) - first).to(tl.int32)
    return first, number


def merge_splits(
    partial: torch.Tensor,
    lse: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor,
    *,
    tile: int,
    min_tiles: int = MIN_TILES,
    query_start: torch.Tensor | None = None,
    max_query_len: int = 1,
    kernel: Any = None,
) -> torch.Tensor:
    """Join the splits of all requests that have more than one; rows of the others in ``out`` stay as they are.

    Args:
        partial: [T, heads, splits, dim] float32, contiguous; splits that a request does not use are never read.
        lse: [T, heads, splits] float32, contiguous, base 2.
        seq_lens: [R] int32 or int64; with ``tile`` it tells how many splits a request uses.
        out: [T, heads, dim], contiguous, written in its own dtype.
        tile: keys in a tile of the kernel that wrote ``partial``.
        min_tiles: fewest tiles of a split there.
        query_start: [R + 1], request r owns the tokens from query_start[r] up to query_start[r + 1]; None where T = R.
        max_query_len: most tokens of a request, at least 1.
        kernel: takes the place of ``merge_kernel``.

    Returns:
        ``out``.
    """
    heads, num_splits, dim = partial.shape[1:]
    grid = (heads, max_query_len, seq_lens.shape[0])
    (merge_kernel if kernel is None else kernel)[grid](
        partial,
        lse,
        seq_lens,
        seq_lens if query_start is None else query_start,
        out,
        dim=dim,
        dim_padded=triton.next_power_of_2(dim),
        tile=tile,
        min_tiles=min_tiles,
        num_splits=num_splits,
        splits_padded=triton.next_power_of_2(num_splits),
        ragged=query_start is not None,
        num_warps=4,
    )
    return out


@triton.jit(do_not_specialize_on_alignment=["seq_lens", "query_start"])  # type: ignore[untyped-decorator]
def merge_kernel(
    partial: tl.tensor,  # [T, heads, splits, dim] float32
    lse: tl.tensor,  # [T, heads, splits] float32
    seq_lens: tl.tensor,  # [R]
    query_start: tl.tensor,  # [R + 1], read only if ragged
    out: tl.tensor,  # [T, heads, dim]
    dim: tl.constexpr,
    dim_padded: tl.constexpr,
    tile: tl.constexpr,
    min_tiles: tl.constexpr,
    num_splits: tl.constexpr,
    splits_padded: tl.constexpr,
    ragged: tl.constexpr,
) -> None:
    """One head of one token a program."""
    head, query, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_tiles = tl.cdiv(tl.load(seq_lens + request).to(tl.int32), tile)
    num_used = tl.cdiv(num_tiles, tiles_per_split(num_tiles, num_splits, min_tiles))
    token, num_queries = tokens_of(query_start, request, ragged)
    if (num_used <= 1) | (query >= num_queries):  # an only split has written its result to `out` itself
        return
    row = (token + query) * tl.num_programs(0) + head
    column = tl.arange(0, dim_padded)
    first = row * num_splits  # of the row's splits
    joined = _join(partial + first * dim, lse + first, num_used, column, dim, splits_padded)
    tl.store(out + row * dim + column, joined.to(out.dtype.element_ty), mask=column < dim)


@triton.jit  # type: ignore[untyped-decorator]
def _join(
    partial: tl.tensor,  # [splits, dim] of one row, contiguous
    lse: tl.tensor,  # [splits]
    num_used: tl.tensor,  # at least 2; the splits behind hold anything
    column: tl.tensor,  # [dim, padded]
    dim: tl.constexpr,
    splits_padded: tl.constexpr,
) -> tl.tensor:
    """The average over the keys of all splits, [dim, padded]."""
    split = tl.arange(0, splits_padded)
    used = split < num_used
    row_lse = tl.load(lse + split, mask=used, other=EMPTY)  # [splits]
    weight = tl.where(used, tl.exp2(row_lse - tl.max(row_lse, 0)), 0.0)  # [splits]
    cell = used[:, None] & (column < dim)[None, :]
    parts = tl.load(partial + split[:, None] * dim + column[None, :], mask=cell, other=0.0)  # [splits, dim]
    return tl.sum(parts * weight[:, None], 0) / tl.sum(weight, 0)
