"""Bit after bit: all tokens that are the first of their words, all that are the second, …"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """[vocab] → words."""
    words = np.zeros((len(allowed) + 31) // 32, dtype=np.uint32)
    for bit in range(32):
        column = allowed[bit::32].astype(np.uint32)
        words[: len(column)] |= column << np.uint32(bit)
    return words
