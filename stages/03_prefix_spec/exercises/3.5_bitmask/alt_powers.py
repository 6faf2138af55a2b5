"""Each bit times its worth, and the sum of a word's 32."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """[vocab] → words."""
    words = np.zeros(-(-len(allowed) // 32), dtype=np.uint64)
    tokens = np.flatnonzero(allowed)
    np.add.at(words, tokens // 32, np.uint64(1) << (tokens % 32).astype(np.uint64))
    return words.astype(np.uint32)
