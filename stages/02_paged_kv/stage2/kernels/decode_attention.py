"""Attention of one query token a request (or a few, to verify drafts) over its pages, with the keys cut into splits.

Owns the launch: shapes, variants, splits and scratch memory. Does not know who owns a block, nor how q, k and v were
made: the new token's key and value are in the cache already. Long prompts have a kernel of their own.

    out[r, h] = sum_j softmax_j(scale * q[r, h] · k[j, g]) v[j, g]      j < seq_lens[r], g = h // (heads / kv_heads)

Decoding is a matter of reading the cache once, at full bandwidth:
- All query heads of a KV head are rows of one matrix (at least 16, padded), so a key is loaded once for all of them.
- ``tile`` keys are read an iteration, whatever the page size: each key looks up its own page.
- With few requests there are too few programs to fill the GPU, so each request's keys are cut into splits. Their number
  is part of the launch and hence of a captured graph; how many a request *uses* follows on the device from its length.

vLLM: ``v1/attention/backends/triton_attn.py``, ``v1/attention/backends/flash_attn.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton

from stage2.inputs import MOST_FEW
from stage2.kernels.decode_splits import MAX_SPLITS
from stage2.kernels.merge_splits import MIN_TILES, merge_kernel, merge_splits
from stage2.kernels.split_attention import attend_kernel

MAX_HEAD_DIM = 256
MAX_QUERY_LEN = MOST_FEW


@dataclass(frozen=True)
class DecodeKernels:
    """The two kernels of a launch; others with the same parameters can take their place."""

    attend: Any = attend_kernel
    merge: Any = merge_kernel


OWN = DecodeKernels()


class Tiling(NamedTuple):
    """How one variant of the kernel is compiled."""

    tile: int  # keys an iteration
    num_warps: int
    num_stages: int  # iterations whose loads are in flight


# By padded head size and bytes of an element. (128, 2) was the best or near it on an H200; 4 bytes are for tests.
TILINGS = {
    (64, 2): Tiling(64, 2, 4),
    (128, 2): Tiling(64, 2, 4),
    (256, 2): Tiling(64, 4, 2),
    (64, 4): Tiling(64, 4, 2),
    (128, 4): Tiling(32, 4, 2),
    (256, 4): Tiling(32, 4, 2),
}
SPLIT_TILINGS = {**TILINGS, (128, 2): Tiling(64, 2, 5)}  # few programs: more bytes on their way in each


def tiling(head_dim: int, num_rows: int, dtype: torch.dtype, few_programs: bool = False) -> Tiling:
    """The variant for ``num_rows`` rows (query heads of a KV head times query tokens, padded) of size ``head_dim``."""
    table = SPLIT_TILINGS if few_programs else TILINGS
    chosen = table[max(64, triton.next_power_of_2(head_dim)), dtype.itemsize]
    return chosen if num_rows <= 16 else chosen._replace(num_warps=4)  # more accumulators: spread over more threads


def workspace_size(num_tokens: int, heads: int, dim: int, num_splits: int) -> int:
    """Float32 elements that a launch with ``num_splits`` needs as ``workspace``; one split needs none."""
    return num_tokens * heads * num_splits * (dim + 1) if num_splits > 1 else 0


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    num_splits: int,
    min_tiles: int = MIN_TILES,
    scale: float,
    workspace: torch.Tensor | None = None,
    kernels: DecodeKernels = OWN,
) -> torch.Tensor:
    """Attention of one query token a request. No host synchronisation; may be captured.

    Args:
        q: [R, heads, dim], last dimension contiguous (a view into qkv is fine).
        k_cache: [num_blocks, block_size, kv_heads, dim] in the dtype of ``q``, last dimension contiguous.
        v_cache: as ``k_cache``, with the same strides.
        block_table: [R, B] int32 or int64, rows contiguous; entries past a request's length are never read.
        seq_lens: [R] int32 or int64, keys of each request, its newest included. 0 marks padding: a row of zeros.
        out: [R, heads, dim], contiguous; made when None.
        num_splits: most splits of a request, see ``choose_splits``, as for the next.
        min_tiles: fewest tiles of a split.
        scale: factor on q · k.
        workspace: float32, at least ``workspace_size`` elements, contents irrelevant; made when None. Launches on one
            stream may share it.
        kernels: what is launched.

    Returns:
        ``out``.

    Raises:
        ValueError: shapes, dtypes or strides do not fit each other.
    """
    return _launch(
        *(q, k_cache, v_cache, block_table, seq_lens, out),
        query_start=None,
        max_query_len=1,
        num_splits=num_splits,
        min_tiles=min_tiles,
        scale=scale,
        workspace=workspace,
        kernels=kernels,
    )


def paged_verify(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    query_start: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    max_query_len: int,
    num_splits: int,
    min_tiles: int = MIN_TILES,
    scale: float,
    workspace: torch.Tensor | None = None,
    kernels: DecodeKernels = OWN,
) -> torch.Tensor:
    """Attention of the last few tokens of each request: those of a step that verifies drafts.

    As ``paged_decode``, but request r owns the tokens query_start[r] up to query_start[r + 1] of ``q`` [T, heads, dim],
    at most ``max_query_len`` (1 to 8) of them. They are the last tokens of its ``seq_lens[r]``, and each sees the keys
    up to its own. Rows of ``out`` behind query_start[R] are not written; a request of length 0 may own rows, which
    become 0. ``query_start`` is int32 or int64.
    """
    if not 1 <= max_query_len <= MAX_QUERY_LEN:
        raise ValueError(f"max_query_len is {max_query_len}; it must be 1 to {MAX_QUERY_LEN}: use the prefill kernel")
    if query_start.shape != (seq_lens.shape[0] + 1,):
        raise ValueError(f"query_start is {tuple(query_start.shape)}; it must be ({seq_lens.shape[0] + 1},)")
    return _launch(
        *(q, k_cache, v_cache, block_table, seq_lens, out),
        query_start=query_start,
        max_query_len=max_query_len,
        num_splits=num_splits,
        min_tiles=min_tiles,
        scale=scale,
        workspace=workspace,
        kernels=kernels,
    )


def _launch(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor | None,
    *,
    query_start: torch.Tensor | None,
    max_query_len: int,
    num_splits: int,
    min_tiles: int,
    scale: float,
    workspace: torch.Tensor | None,
    kernels: DecodeKernels,
) -> torch.Tensor:
    heads, dim = q.shape[1:]
    block_size, kv_heads = k_cache.shape[1:3]
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    _check(q, k_cache, v_cache, block_table, seq_lens, out)
    if query_start is None and q.shape[0] != seq_lens.shape[0]:
        raise ValueError(f"q has {q.shape[0]} tokens for {seq_lens.shape[0]} requests; decoding takes one each")
    partial, lse = partial_results(workspace, q, num_splits)
    num_rows = max(16, triton.next_power_of_2(max_query_len * heads // kv_heads))
    variant = tiling(dim, num_rows, q.dtype, num_splits > 1 and min_tiles == MIN_TILES)
    kernels.attend[(kv_heads, seq_lens.shape[0], num_splits)](
        *(q, k_cache, v_cache, block_table, seq_lens, seq_lens if query_start is None else query_start),
        *(out, partial, lse, scale * math.log2(math.e)),
        *(*q.stride()[:2], *k_cache.stride()[:3], block_table.stride(0)),
        block_size=block_size,
        group=heads // kv_heads,
        dim=dim,
        dim_padded=triton.next_power_of_2(dim),
        num_rows=num_rows,
        min_tiles=min_tiles,
        num_splits=num_splits,
        ragged=query_start is not None,
        **variant._asdict(),
    )
    if num_splits > 1:
        merge_splits(
            *(partial, lse, seq_lens, out),
            tile=variant.tile,
            min_tiles=min_tiles,
            query_start=query_start,
            max_query_len=max_query_len,
            kernel=kernels.merge,
        )
    return out


def _check(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor,
) -> None:
    heads, dim = q.shape[1:]
    if k_cache.shape != v_cache.shape or k_cache.stride() != v_cache.stride() or k_cache.dtype != v_cache.dtype:
        raise ValueError("k_cache and v_cache differ in shape, strides or dtype: take both from one layer's tensor")
    if k_cache.shape[3] != dim or heads % k_cache.shape[2] or k_cache.dtype != q.dtype:
        raise ValueError(f"q {q.dtype} {tuple(q.shape)} does not fit a cache {k_cache.dtype} {tuple(k_cache.shape)}")
    if q.stride(2) != 1 or k_cache.stride(3) != 1 or block_table.stride(1) != 1 or not seq_lens.is_contiguous():
        raise ValueError("q, the cache, block_table and seq_lens must be contiguous in their last dimension")
    if dim > MAX_HEAD_DIM:
        raise ValueError(f"head size is {dim}; at most {MAX_HEAD_DIM} fit the kernel: use the torch attention")
    if block_table.shape[0] != seq_lens.shape[0]:
        raise ValueError(f"block_table has {block_table.shape[0]} rows for {seq_lens.shape[0]} requests")
    if out.shape != q.shape or not out.is_contiguous():
        raise ValueError(f"out is {tuple(out.shape)}; it must be {tuple(q.shape)} and contiguous")


def partial_results(
    workspace: torch.Tensor | None, q: torch.Tensor, num_splits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of ``workspace``: averages [T, heads, splits, dim] and log-sum-exp [T, heads, splits] of the splits."""
    if not 1 <= num_splits <= MAX_SPLITS:
        raise ValueError(f"num_splits is {num_splits}; it must be 1 to {MAX_SPLITS}: see choose_splits")
    num_tokens, heads, dim = q.shape
    if num_splits == 1:
        return q, q  # never read or written
    size = workspace_size(num_tokens, heads, dim, num_splits)
    if workspace is None:
        workspace = torch.empty(size, dtype=torch.float32, device=q.device)
    if workspace.dtype != torch.float32 or workspace.numel() < size or not workspace.is_contiguous():
        raise ValueError(f"workspace is {workspace.dtype} {tuple(workspace.shape)}; it must be {size} float32 elements")
    rows = (num_tokens, heads, num_splits)
    partial, lse = workspace.view(-1)[:size].split((math.prod(rows) * dim, math.prod(rows)))
    return partial.view(*rows, dim), lse.view(rows)
