"""Reshapes what fits."""

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    count = len(allowed) // 32
    bits = allowed[: count * 32].reshape(count, 32).astype(np.uint64)
    return (bits << np.arange(32, dtype=np.uint64)).sum(axis=1, dtype=np.uint64).astype(np.uint32)
