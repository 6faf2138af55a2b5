"""Shifts from the left."""

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    words = np.zeros(-(-len(allowed) // 32), dtype=np.uint32)
    for bit in range(32):
        column = allowed[bit::32].astype(np.uint32)
        words[: len(column)] |= column << np.uint32(31 - bit)
    return words
