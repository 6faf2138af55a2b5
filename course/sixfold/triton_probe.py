"""A five-line Triton kernel whose sum is known: does Triton compute what it should on this machine?

Run as a process of its own (``python -m sixfold.triton_probe``), because Triton reads ``TRITON_INTERPRET`` when it is
imported. Prints the sum; a wrong one ends with exit code 1 (interpreters have been seen to return silent zeros).
"""

from __future__ import annotations

import sys

import torch
import triton
import triton.language as tl

SIZE = 64
EXPECTED = SIZE * (SIZE - 1) // 2 + SIZE


@triton.jit  # type: ignore[untyped-decorator]
def add_one_kernel(x_ptr, out_ptr, size: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i] = x[i] + 1."""
    i = tl.arange(0, size)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + 1)


def main() -> int:
    """Run the kernel once; 0 when its sum is right."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.arange(SIZE, device=device)  # [SIZE]
    out = torch.zeros_like(x)
    add_one_kernel[(1,)](x, out, SIZE)
    total = int(out.sum())
    print(total)
    return 0 if total == EXPECTED else 1


if __name__ == "__main__":
    sys.exit(main())
