"""Takes one split after the other, and shrinks what it has whenever a larger one comes."""

from __future__ import annotations

import triton
import triton.language as tl

from sixfold.exercises.kernel_variants import kernel_with
from stage2.kernels.merge_splits import EMPTY
from stage2.kernels.merge_splits import merge_kernel as reference


@triton.jit
def _join(partial, lse, num_used, column, dim: tl.constexpr, splits_padded: tl.constexpr):
    """The same trick as inside a split: the largest so far, and a sum in its terms."""
    best = tl.full([1], EMPTY, tl.float32)
    total = tl.zeros([1], tl.float32)
    average = tl.zeros(column.shape, tl.float32)
    for split in range(num_used):
        row_lse = tl.load(lse + split)
        new_best = tl.maximum(best, row_lse)
        shrink, weight = tl.exp2(best - new_best), tl.exp2(row_lse - new_best)
        total = total * shrink + weight
        average = average * shrink + weight * tl.load(partial + split * dim + column, column < dim, 0.0)
        best = new_best
    return average / total


merge_kernel = kernel_with(reference, _join=_join)
