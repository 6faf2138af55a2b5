"""Keeps the average divided at all times, and joins each tile to it as if it were a split."""

from __future__ import annotations

import triton
import triton.language as tl

from sixfold.exercises.kernel_variants import kernel_with
from stage2.kernels.merge_splits import EMPTY
from stage2.kernels.split_attention import attend_kernel as reference
from stage2.kernels.split_attention import dot


@triton.jit
def _attend_keys(
    queries, last_key, k_head, v_head, seq_len, split, split_tiles, table, scale_log2, block_stride, slot_stride,
    block_size: tl.constexpr, dim: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """More divisions, the same numbers: no total is kept, its logarithm is."""
    column = tl.arange(0, queries.shape[1])
    average = tl.zeros(queries.shape, tl.float32)
    lse = tl.full([queries.shape[0]], EMPTY, tl.float32)
    end = tl.minimum((split + 1) * split_tiles * tile, seq_len)
    for start in range(split * split_tiles * tile, end, tile):
        key = start + tl.arange(0, tile)
        block = tl.load(table + key // block_size, key < seq_len, 0).to(tl.int64)
        source = (block * block_stride + (key % block_size) * slot_stride)[:, None] + column[None, :]
        cell = (key < seq_len)[:, None] & (column < dim)[None, :]
        keys, values = tl.load(k_head + source, cell, 0.0), tl.load(v_head + source, cell, 0.0)
        scores = dot(queries, tl.trans(keys), tl.zeros([queries.shape[0], tile], tl.float32)) * scale_log2
        scores = tl.where(key[None, :] <= last_key[:, None], scores, EMPTY)
        best = tl.max(scores, 1)
        weights = tl.exp2(scores - best[:, None])
        total = tl.sum(weights, 1)
        tile_lse = best + tl.log2(total)
        larger = tl.maximum(lse, tile_lse)
        old, new = tl.exp2(lse - larger), tl.exp2(tile_lse - larger)
        tile_average = dot(weights / total[:, None], values, tl.zeros(queries.shape, tl.float32))
        average = (average * old[:, None] + tile_average * new[:, None]) / (old + new)[:, None]
        lse = larger + tl.log2(old + new)
    return average, lse


attend_kernel = kernel_with(reference, _attend_keys=_attend_keys)
