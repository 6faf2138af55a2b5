"""A new maximum leaves the sums as they are.

All weights are measured against the largest score so far. When a tile brings a larger one, what was added up before is
too large: multiply both ``total`` and ``average`` with ``tl.exp2(best - new_best)`` before you add the tile.
"""

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
    """The sum is shrunk, the average is forgotten."""
    num_rows: tl.constexpr = queries.shape[0]
    column = tl.arange(0, queries.shape[1])
    best = tl.full([num_rows], EMPTY, tl.float32)
    total = tl.zeros([num_rows], tl.float32)
    average = tl.zeros(queries.shape, tl.float32)
    for index in range(split * split_tiles, tl.minimum((split + 1) * split_tiles, tl.cdiv(seq_len, tile))):
        key = index * tile + tl.arange(0, tile)
        readable = key < seq_len
        block = tl.load(table + key // block_size, readable, 0).to(tl.int64)
        source = (block * block_stride + (key % block_size) * slot_stride)[:, None] + column[None, :]
        cell = readable[:, None] & (column < dim)[None, :]
        keys, values = tl.load(k_head + source, cell, 0.0), tl.load(v_head + source, cell, 0.0)
        scores = dot(queries, tl.trans(keys), tl.zeros([num_rows, tile], tl.float32)) * scale_log2
        scores = tl.where(key[None, :] <= last_key[:, None], scores, float("-inf"))
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - new_best[:, None])
        shrink = tl.exp2(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        average = dot(weights, values, average)
        best = new_best
    total = tl.maximum(total, 1.0)
    return average / total[:, None], best + tl.log2(total)


attend_kernel = kernel_with(reference, _attend_keys=_attend_keys)
