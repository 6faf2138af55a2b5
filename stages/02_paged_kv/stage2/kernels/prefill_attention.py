"""Attention of any number of query tokens a request over the paged cache, in one launch.

Owns the kernel that lets every query see the keys up to its own position. This step's keys are in the cache already.
Does not know of prompts, decodes or scheduling: a request that sends one token is a short chunk, so a mixed batch is
right as well. vLLM: ``attention/ops/triton_unified_attention.py``, ``v1/attention/backends/flash_attn.py``.

For query i of request r, which sends n of its ``seq_lens[r]`` tokens, with p = seq_lens[r] - n + i:

    out[i] = sum over j <= p of  softmax_j(scale * q[i] . k[j]) * v[j],    k[j] in block_table[r, j // block_size]

A program takes a tile of queries of one request and one KV head. The query heads that share this KV head are further
rows of the same matrix. Example with a group of 3 heads and a tile of 8 rows, so 2 queries:

    row      0      1      2      3      4      5      6  7
    query    i      i      i     i+1    i+1    i+1     -  -       rows left over are computed and never written
    head    3h    3h+1   3h+2    3h    3h+1   3h+2     -  -

It walks over the keys in tiles, with the online softmax (https://arxiv.org/abs/2205.14135): first the tiles that all
its queries see whole, without any mask, then those on the diagonal; later ones are never touched.

    keys        0 . . . . . . . full_end . . . last position of the tile . . . seq_len
                [ no mask        )[ mask                               )[ not read      )

Where there are few tiles of queries and many keys, the walk is cut into splits: see ``prefill_splits``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from stage2.kernels.decode_attention import partial_results
from stage2.kernels.merge_splits import EMPTY
from stage2.kernels.prefill_splits import WHOLE, KeySplits, find_piece, merge_pieces
from stage2.kernels.prefill_tiles import PrefillTile, bound_query_tiles, choose_tile

# The running maximum before any key: finite, or a row that sees nothing would subtract infinity from infinity.
LOWEST = EMPTY


def paged_prefill(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start: torch.Tensor,
    seq_lens: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    scale: float,
    max_query_tiles: int | None = None,
    min_queries: int = 1,
    tile: PrefillTile | None = None,
    splits: KeySplits = WHOLE,
    workspace: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of a ragged batch of queries over the paged cache; no host synchronisation, fit for a graph.

    Args:
        q: [T, heads, dim], bf16, fp16 or fp32, the last dimension dense. T may be padded: tokens from
            ``query_start[R]`` on belong to nobody, and their rows of ``out`` are left as they are.
        k_cache: [num_blocks, block_size, kv_heads, dim] in the dtype of ``q``; unwritten slots may hold anything.
        v_cache: as ``k_cache``, with the same strides.
        block_table: [R, B] int32 or int64; entries beyond a sequence are never read.
        query_start: [R + 1] int32 or int64; request r owns [query_start[r], query_start[r + 1]), possibly none.
        seq_lens: [R] int32 or int64, this step's tokens included. Queries before position 0 get zeros.
        out: [T, heads, dim], written and returned; made when ``None``. The last dimension dense.
        scale: what scores are multiplied by, positive; usually dim ** -0.5.
        max_query_tiles: programs a KV head. ``None`` takes the bound that holds for any batch of these shapes; with
            fewer than the batch has tiles, the first ones are not computed (see ``bound_query_tiles``).
        min_queries: requests with fewer are left out, and their rows of ``out`` as they are.
        tile: how the work is cut; ``None`` lets ``choose_tile`` look at the shapes.
        splits: whether and how keys are cut too, see ``choose_key_splits``; a second launch then joins the results.
        workspace: float32, at least ``workspace_size`` elements, contents irrelevant; made when ``None``. Launches on
            one stream may share it.

    Raises:
        ValueError: head counts, strides, ``scale``, ``tile``, ``splits`` or ``workspace`` do not fit, or the dtype is
            bf16 under the interpreter.
    """
    num_tokens, heads, dim = q.shape
    num_reqs, (block_size, kv_heads) = seq_lens.shape[0], k_cache.shape[1:3]
    group = heads // kv_heads
    tile = choose_tile(num_tokens, num_reqs, group, kv_heads, dim, q.dtype) if tile is None else tile
    out = torch.empty_like(q, memory_format=torch.contiguous_format) if out is None else out
    _check(q, k_cache, v_cache, out, tile, scale)
    if max_query_tiles is None:
        max_query_tiles = bound_query_tiles(num_tokens, num_reqs, group, tile)
    if max_query_tiles == 0 or num_reqs == 0:
        return out
    partial, lse = partial_results(workspace, q, splits.num_splits)
    reqs_padded = 64 if num_reqs <= 64 else max(256, triton.next_power_of_2(num_reqs))  # few variants to compile
    division = {"reqs_padded": reqs_padded, "min_queries": min_queries, "num_keys": tile.keys, **splits._asdict()}
    division["queries"] = tile.rows // group
    _prefill_kernel[(max_query_tiles + (splits.wanted if splits.num_splits > 1 else 0), kv_heads)](
        *(q, k_cache, v_cache, out, partial, lse, block_table, query_start, seq_lens),
        scale * math.log2(math.e),  # exp2 is one instruction, exp is two
        num_reqs,
        *(*q.stride()[:2], *k_cache.stride()[:3], *out.stride()[:2], block_table.stride(0)),
        group=group,
        head_dim=dim,
        dim_padded=max(16, triton.next_power_of_2(dim)),
        block_size=block_size,
        num_rows=tile.rows,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        **division,
    )
    if splits.num_splits > 1:
        merge_pieces(partial, lse, out, query_start, seq_lens, group=group, **division)
    return out


def _check(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor, tile: PrefillTile, scale: float
) -> None:
    heads, kv_heads = q.shape[1], k_cache.shape[2]
    if heads % kv_heads != 0:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} KV heads: use a multiple")
    if (group := heads // kv_heads) > tile.rows:
        raise ValueError(f"a KV head has {group} query heads; the tile has {tile.rows} rows: use a larger tile")
    if k_cache.stride() != v_cache.stride():
        raise ValueError(f"k_cache has strides {k_cache.stride()}, v_cache {v_cache.stride()}: lay them out alike")
    if q.stride(2) != 1 or k_cache.stride(3) != 1 or out.stride(2) != 1:
        raise ValueError("the head dimension of q, the caches and out must be dense: call contiguous() first")
    if q.dtype is torch.bfloat16 and not q.is_cuda:
        raise ValueError("Triton's interpreter cannot multiply bfloat16 matrices: use float32 on a CPU")
    if scale <= 0:
        raise ValueError(f"scale is {scale}; it must be positive: the running maximum is taken before scaling")


@triton.jit(do_not_specialize=["num_reqs"])  # type: ignore[untyped-decorator]
def _prefill_kernel(
    q_ptr: tl.tensor,  # [T, heads, head_dim]
    k_ptr: tl.tensor, v_ptr: tl.tensor,  # [num_blocks, block_size, kv_heads, head_dim]
    out_ptr: tl.tensor,  # [T, heads, head_dim]
    partial: tl.tensor,  # [T, heads, splits, head_dim] float32, written in place of out where a request has several
    lse: tl.tensor,  # [T, heads, splits] float32
    table_ptr: tl.tensor,  # [R, B]
    start_ptr: tl.tensor,  # [R + 1]
    lens_ptr: tl.tensor,  # [R]
    scale: tl.tensor,  # times log2(e)
    num_reqs: tl.tensor,
    q_token_stride: tl.tensor, q_head_stride: tl.tensor,
    block_stride: tl.tensor, slot_stride: tl.tensor, kv_head_stride: tl.tensor,
    out_token_stride: tl.tensor, out_head_stride: tl.tensor, table_stride: tl.tensor,
    group: tl.constexpr, head_dim: tl.constexpr, dim_padded: tl.constexpr, block_size: tl.constexpr,
    num_rows: tl.constexpr, num_splits: tl.constexpr, wanted: tl.constexpr, min_tiles: tl.constexpr,
    reqs_padded: tl.constexpr, queries: tl.constexpr, min_queries: tl.constexpr, num_keys: tl.constexpr,
) -> None:  # fmt: skip
    req, first, start, num_queries, split, number = find_piece(
        start_ptr, lens_ptr, num_reqs, reqs_padded, queries, min_queries, num_keys, num_splits, wanted, min_tiles
    )
    if req < 0:
        return
    kv_head = tl.program_id(1)

    # 1. The rows of this tile and the positions of their queries.
    row = tl.arange(0, num_rows)
    query = first + row // group  # [rows] counted from the request's first
    head = kv_head * group + row % group
    seq_len = tl.load(lens_ptr + req).to(tl.int32)
    context = seq_len - num_queries  # position of the request's first query
    token = (start + query).to(tl.int64)
    dim = tl.arange(0, dim_padded)
    own_rows = (query < num_queries) & (row < queries * group)
    inside = own_rows[:, None] & (dim < head_dim)[None, :]
    q = tl.load(q_ptr + (token * q_token_stride + head * q_head_stride)[:, None] + dim, mask=inside, other=0.0)

    # 2. All keys before full_end are visible to all queries of the tile; no query sees one from key_end on.
    key_end = context + tl.minimum(first + queries, num_queries)
    full_end = tl.maximum(context + first + 1, 0) // num_keys * num_keys
    acc, total, top = _attend_split(
        q, context + query, full_end, key_end, seq_len, split, number, num_splits,
        k_ptr + kv_head.to(tl.int64) * kv_head_stride, v_ptr + kv_head.to(tl.int64) * kv_head_stride,
        table_ptr + req.to(tl.int64) * table_stride, block_stride, slot_stride, scale, head_dim, block_size, num_keys,
    )  # fmt: skip

    # 3. Divide by the sum of the weights; a row that saw no key has neither, and gives zeros.
    total = tl.where(total == 0.0, 1.0, total)
    acc = acc / total[:, None]  # [rows, dim]
    if num_splits > 1:
        place = (token * (tl.num_programs(1) * group) + head) * num_splits + split  # [rows]
        tl.store(partial + place[:, None] * head_dim + dim, acc, mask=inside & (number > 1))
        tl.store(lse + place, top + tl.log2(total), mask=own_rows & (number > 1))
        inside = inside & (number == 1)
    at = (token * out_token_stride + head * out_head_stride)[:, None] + dim
    tl.store(out_ptr + at, acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _attend_split(
    q: tl.tensor,  # [rows, dim]
    query_pos: tl.tensor,  # [rows]
    full_end: tl.tensor,
    key_end: tl.tensor,
    seq_len: tl.tensor,
    split: tl.tensor,
    number: tl.tensor,  # splits of this request
    num_splits: tl.constexpr,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    table_ptr: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    scale: tl.tensor,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    num_keys: tl.constexpr,
) -> Any:
    """``_attend`` to the keys of a split, first those without a mask; a split that lies behind key_end has none."""
    begin, diagonal = 0, full_end
    if num_splits > 1:
        split_keys = tl.cdiv(tl.cdiv(seq_len, num_keys), number) * num_keys
        begin = split * split_keys
        diagonal = tl.maximum(full_end, begin)
        full_end, key_end = tl.minimum(full_end, begin + split_keys), tl.minimum(key_end, begin + split_keys)
    acc = tl.zeros(q.shape, tl.float32)
    total = tl.zeros([q.shape[0]], tl.float32)
    top = tl.full([q.shape[0]], LOWEST, tl.float32)
    for masked in tl.static_range(2):
        key_start = diagonal if masked else begin
        key_stop = key_end if masked else full_end
        acc, total, top = _attend(
            acc, total, top, q, query_pos, key_start, key_stop, k_ptr, v_ptr, table_ptr, block_stride, slot_stride,
            scale, masked, head_dim, q.shape[1], block_size, num_keys,
        )  # fmt: skip
    return acc, total, top


@triton.jit  # type: ignore[untyped-decorator]
def _attend(
    acc: tl.tensor,  # [rows, dim] float32, weighted sum of values
    total: tl.tensor,  # [rows] float32, sum of weights
    top: tl.tensor,  # [rows] float32, largest scaled score yet: weights are relative to it
    q: tl.tensor,  # [rows, dim]
    query_pos: tl.tensor,  # [rows]
    key_start: tl.tensor,  # keys [key_start, key_stop) are attended
    key_stop: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    table_ptr: tl.tensor,
    block_stride: tl.tensor,
    slot_stride: tl.tensor,
    scale: tl.tensor,
    masked: tl.constexpr,
    head_dim: tl.constexpr,
    dim_padded: tl.constexpr,
    block_size: tl.constexpr,
    num_keys: tl.constexpr,
) -> Any:
    dim = tl.arange(0, dim_padded)
    for first_key in range(key_start, key_stop, num_keys):
        key = first_key + tl.arange(0, num_keys)  # [keys] positions
        block = _load(table_ptr + key // block_size, key < key_stop, masked)  # [keys]
        # 64 bits: in a large cache block * stride passes 2^31.
        at = (block.to(tl.int64) * block_stride + key % block_size * slot_stride)[:, None] + dim  # [keys, dim]
        # Values need the mask too: a weight of zero times a slot that was never written can be not-a-number.
        inside = (key < key_stop)[:, None] & (dim < head_dim)[None, :]
        k = _load(k_ptr + at, inside, masked or head_dim != dim_padded)  # [keys, dim]
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")  # [rows, keys]
        if masked:
            scores = tl.where(key[None, :] <= query_pos[:, None], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1) * scale)  # [rows]
        weights = tl.exp2(scores * scale - new_top[:, None])  # [rows, keys]
        shrink = tl.exp2(top - new_top)  # [rows]
        v = _load(v_ptr + at, inside, masked or head_dim != dim_padded)  # [keys, dim]
        acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        top = new_top
    return acc, total, top


@triton.jit  # type: ignore[untyped-decorator]
def _load(pointers: tl.tensor, inside: tl.tensor, masked: tl.constexpr) -> tl.tensor:
    """A mask that hides nothing is left out, since it costs instructions in the inner loop."""
    if masked:
        return tl.load(pointers, mask=inside, other=0)
    else:
        return tl.load(pointers)
