"""The kernel behind paged decoding and verifying: one split of the keys of one request.

Owns the reading of queries, keys and values, and the running softmax. How many splits and which tiles is its launcher's
choice (``decode_attention``), how the splits are joined is ``merge_splits``' matter.

    scores  = q · k of a tile                             [rows, tile], hidden keys at minus infinity
    best'   = max(best, scores)                           starts at a finite number: no inf - inf
    weights = 2^(scores - best')
    total   = total * 2^(best - best') + sum(weights)
    average = average * 2^(best - best') + weights · v    divided by total at the end

Row i of the matrix is query i // group and head i % group of the KV head: a key is loaded once for all of them.

vLLM: ``attention/ops/triton_unified_attention.py``, ``attention/ops/triton_decode_attention.py`` (stage 1).
"""

from __future__ import annotations

import triton
import triton.language as tl

from stage2.kernels.merge_splits import EMPTY, tiles_per_split, tokens_of

# Triton's interpreter multiplies the bit patterns of bfloat16 numbers as if they were integers.
INTERPRETED: tl.constexpr = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["block_table", "seq_lens", "query_start"]
)
def attend_kernel(
    q: tl.tensor,  # [T, heads, dim]
    k_cache: tl.tensor,  # [num_blocks, block_size, kv_heads, dim]
    v_cache: tl.tensor,  # the same
    block_table: tl.tensor,  # [R, B]
    seq_lens: tl.tensor,  # [R]
    query_start: tl.tensor,  # [R + 1], read only if ragged
    out: tl.tensor,  # [T, heads, dim], written here where a request uses one split
    partial: tl.tensor,  # [T, heads, splits, dim] float32, written where it uses several
    lse: tl.tensor,  # [T, heads, splits] float32
    scale_log2: float,  # scale * log2(e): powers of 2 are what the hardware has
    q_token_stride: int,
    q_head_stride: int,
    block_stride: int,
    slot_stride: int,
    head_stride: int,
    table_stride: int,
    block_size: tl.constexpr,
    group: tl.constexpr,
    dim: tl.constexpr,
    dim_padded: tl.constexpr,
    num_rows: tl.constexpr,
    tile: tl.constexpr, min_tiles: tl.constexpr, num_splits: tl.constexpr,
    ragged: tl.constexpr,
) -> None:  # fmt: skip
    """Grid (kv_heads, R, splits): neighbours read neighbouring bytes, for the KV heads of a slot lie together.

    Splits come last: programs without keys end at once, and if they stood between the others, some multiprocessors
    would be given more of those than the rest.
    """
    kv_head, request, split = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    seq_len = tl.load(seq_lens + request).to(tl.int32)
    num_tiles = tl.cdiv(seq_len, tile)
    split_tiles = tiles_per_split(num_tiles, num_splits, min_tiles)
    if (split * split_tiles >= num_tiles) & (split > 0):  # split 0 of an empty request goes on and writes its zeros
        return
    token, num_queries = tokens_of(query_start, request, ragged)
    row, column = tl.arange(0, num_rows), tl.arange(0, dim_padded)
    query, head = row // group, kv_head * group + row % group
    cell = (query < num_queries)[:, None] & (column < dim)[None, :]
    source = (token + query) * q_token_stride + head * q_head_stride
    queries = tl.load(q + source[:, None] + column[None, :], cell, 0.0)  # [rows, dim]
    offset = kv_head.to(tl.int64) * head_stride
    average, row_lse = _attend_keys(
        *(queries, seq_len - num_queries + query, k_cache + offset, v_cache + offset, seq_len, split, split_tiles),
        *(block_table + request * table_stride, scale_log2, block_stride, slot_stride, block_size, dim, tile),
    )
    target = (token + query) * (tl.num_programs(0) * group) + head  # [rows]
    if num_tiles <= split_tiles:
        tl.store(out + target[:, None] * dim + column[None, :], average.to(out.dtype.element_ty), cell)
    else:
        target = target * num_splits + split
        tl.store(partial + target[:, None] * dim + column[None, :], average, cell)
        tl.store(lse + target, row_lse, query < num_queries)


@triton.jit  # type: ignore[untyped-decorator]
def _attend_keys(
    queries: tl.tensor,  # [rows, dim]
    last_key: tl.tensor,  # [rows] position of each query
    k_head: tl.tensor,
    v_head: tl.tensor,
    seq_len: tl.tensor,
    split: tl.tensor,
    split_tiles: tl.tensor,
    table: tl.tensor,  # [B]
    scale_log2: float,
    block_stride: int,
    slot_stride: int,
    block_size: tl.constexpr,
    dim: tl.constexpr,
    tile: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Attention to the keys of a split: average [rows, dim] and log2 of the sum of 2^score [rows]."""
    num_rows: tl.constexpr = queries.shape[0]
    column = tl.arange(0, queries.shape[1])
    best = tl.full([num_rows], EMPTY, tl.float32)
    total = tl.zeros([num_rows], tl.float32)
    average = tl.zeros(queries.shape, tl.float32)
    end = tl.minimum((split + 1) * split_tiles, tl.cdiv(seq_len, tile))
    for index in range(split * split_tiles, end):
        key = index * tile + tl.arange(0, tile)  # [tile]
        readable = key < seq_len  # what lies behind may be anything, not-a-number too
        block = tl.load(table + key // block_size, readable, 0).to(tl.int64)  # [tile]
        slot = block * block_stride + (key % block_size).to(tl.int64) * slot_stride  # 64 bits: a cache may be 140 GB
        source = slot[:, None] + column[None, :]
        cell = readable[:, None] & (column < dim)[None, :]
        keys = tl.load(k_head + source, cell, 0.0)  # [tile, dim]
        scores = dot(queries, tl.trans(keys), tl.zeros([num_rows, tile], tl.float32)) * scale_log2  # [rows, tile]
        scores = tl.where(key[None, :] <= last_key[:, None], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - new_best[:, None])  # [rows, tile]
        shrink = tl.exp2(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        values = tl.load(v_head + source, cell, 0.0)  # [tile, dim]
        average = dot(weights.to(values.dtype), values, average * shrink[:, None])
        best = new_best
    total = tl.maximum(total, 1.0)  # the largest score alone adds 1: below that nothing was seen
    return average / total[:, None], best + tl.log2(total)


@triton.jit  # type: ignore[untyped-decorator]
def dot(a: tl.tensor, b: tl.tensor, total: tl.tensor) -> tl.tensor:
    """The matrix product ``a · b`` in float32, added to ``total``."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")  # float32 as such, not rounded to TF32
