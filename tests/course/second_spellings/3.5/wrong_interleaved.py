"""Reshapes the wrong way round."""

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    count = -(-len(allowed) // 32)
    padded = np.zeros(count * 32, dtype=bool)
    padded[: len(allowed)] = allowed
    bits = np.ascontiguousarray(padded.reshape(32, count).T)
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)[:, 0]
