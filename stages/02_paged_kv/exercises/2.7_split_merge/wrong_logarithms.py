"""The averages are weighted with the logarithms.

``lse`` is the logarithm of a weight, not the weight: a split whose ``lse`` is 10 counts a thousand times as much as one
whose ``lse`` is 0, and a negative ``lse`` is still a positive weight. Take the power first: 2 to the ``lse``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sixfold.exercises.kernel_variants import kernel_with
from stage2.kernels.merge_splits import merge_kernel as reference


@triton.jit
def _join(partial, lse, num_used, column, dim: tl.constexpr, splits_padded: tl.constexpr):
    """lse where exp2(lse) belongs."""
    split = tl.arange(0, splits_padded)
    used = split < num_used
    weight = tl.load(lse + split, used, 0.0)
    cell = used[:, None] & (column < dim)[None, :]
    parts = tl.load(partial + split[:, None] * dim + column[None, :], cell, 0.0)
    return tl.sum(parts * weight[:, None], 0) / tl.sum(weight, 0)


merge_kernel = kernel_with(reference, _join=_join)
