"""Kernels where there is no GPU: Triton's interpreter.

Owns the switch. Triton looks at it when a kernel is decorated, so it has to be set before a file with kernels is
imported. Does not import Triton.

vLLM: none; it needs an accelerator.
"""

from __future__ import annotations

import os
import warnings


def interpret_kernels() -> None:
    """Let kernels that are imported from now on run in the interpreter; whoever has set the switch, keeps it."""
    os.environ.setdefault("TRITON_INTERPRET", "1")
    # It computes with NumPy, which warns of infinities and not-a-numbers, where a GPU is silent.
    for module in (r"triton\.runtime", r"numpy\._core\.fromnumeric"):
        warnings.filterwarnings("ignore", category=RuntimeWarning, module=module)


def interpret_without_gpu() -> None:
    """The same, unless there is a GPU to compile kernels for."""
    import torch  # here, because listing and asking for checks does without it

    if not torch.cuda.is_available():
        interpret_kernels()
