"""Bits that belong to no token are 1.

Logits often have more columns than the vocabulary has tokens, because matrices like round sizes. A 1 there allows a
token that does not exist, and the detokenizer, or the next look-up of an embedding, meets an id that means nothing.
What is nobody's is forbidden.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Filled with ones."""
    padded = np.ones((len(allowed) + 31) // 32 * 32, dtype=np.bool_)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32)
