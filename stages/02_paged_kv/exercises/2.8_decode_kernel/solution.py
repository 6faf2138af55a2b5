"""The engine's own version."""

from stage2.kernels.split_attention import attend_kernel as attend_kernel
