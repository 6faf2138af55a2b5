"""Hidden keys are taken out after the weights were added up.

A slot behind the last key loads as 0, its score is 0, and its weight is not: it takes a share of ``total``. Set the
scores of hidden keys to minus infinity before you take the maximum and the power; their weights are 0 then.
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
    """The average is right, what it is divided by is not."""
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
        new_best = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - new_best[:, None])
        shrink = tl.exp2(best - new_best)
        total = total * shrink + tl.sum(weights, 1)
        weights = tl.where(key[None, :] <= last_key[:, None], weights, 0.0)
        average = dot(weights, values, average * shrink[:, None])
        best = new_best
    total = tl.maximum(total, 1.0)
    return average / total[:, None], best + tl.log2(total)


attend_kernel = kernel_with(reference, _attend_keys=_attend_keys)
