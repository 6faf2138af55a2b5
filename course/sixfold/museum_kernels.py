"""The bug museum's kernels: imported only where kernels run.

Owns the faults. What is wrong is not told here but in the notebook that shows it.

vLLM: none; the faults are of engines in general.
"""

from __future__ import annotations

import triton.language as tl

from sixfold.exercises.kernel_variants import kernel_with
from stage2.kernels import split_attention

NOTHING = tl.constexpr(float("-inf"))

# A decode kernel that passes the check of exercise 2.8.
suspect_attend_kernel = kernel_with(
    split_attention.attend_kernel, _attend_keys=kernel_with(split_attention._attend_keys, EMPTY=NOTHING)
)
