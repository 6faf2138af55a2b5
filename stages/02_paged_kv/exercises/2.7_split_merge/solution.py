"""The engine's own version."""

from stage2.kernels.merge_splits import merge_kernel as merge_kernel
