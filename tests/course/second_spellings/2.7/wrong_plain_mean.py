"""A loop that adds, and one division."""

from __future__ import annotations

import triton
import triton.language as tl

from sixfold.exercises.kernel_variants import kernel_with
from stage2.kernels.merge_splits import merge_kernel as reference


@triton.jit
def _join(partial, lse, num_used, column, dim: tl.constexpr, splits_padded: tl.constexpr):
    average = tl.zeros(column.shape, tl.float32)
    for split in range(num_used):
        average += tl.load(partial + split * dim + column, column < dim, 0.0)
    return average * (1.0 / num_used)


merge_kernel = kernel_with(reference, _join=_join)
