"""Starts from all ones and takes away what is forbidden."""

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    words = np.full(-(-len(allowed) // 32), 0xFFFFFFFF, dtype=np.uint32)
    for token in np.flatnonzero(~allowed).tolist():
        words[token // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token % 32))
    return words
