"""The queries are not scaled."""

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
    column = tl.arange(0, queries.shape[1])
    average = tl.zeros(queries.shape, tl.float32)
    total = tl.zeros([queries.shape[0]], tl.float32)
    best = tl.full([queries.shape[0]], EMPTY, tl.float32)
    end = tl.minimum((split + 1) * split_tiles * tile, seq_len)
    for start in range(split * split_tiles * tile, end, tile):
        key = start + tl.arange(0, tile)
        inside = (key < seq_len)[:, None] & (column < dim)[None, :]
        page = tl.load(table + key // block_size, key < seq_len, 0).to(tl.int64)
        place = page[:, None] * block_stride + (key % block_size)[:, None] * slot_stride + column[None, :]
        k = tl.load(k_head + place, inside, 0.0)
        v = tl.load(v_head + place, inside, 0.0)
        s = dot(queries, tl.trans(k), tl.zeros([queries.shape[0], tile], tl.float32))
        s += tl.where(key < seq_len, 0.0, float("-inf"))[None, :]
        top = tl.maximum(tl.max(s, 1), best)
        w = tl.exp2(s - top[:, None])
        total = tl.sum(w, 1) + total * tl.exp2(best - top)
        average = average * tl.exp2(best - top)[:, None] + tl.sum(w[:, :, None] * v[None, :, :], 1)
        best = top
    return average / tl.maximum(total, 1.0)[:, None], best + tl.log2(tl.maximum(total, 1.0))


attend_kernel = kernel_with(reference, _attend_keys=_attend_keys)
