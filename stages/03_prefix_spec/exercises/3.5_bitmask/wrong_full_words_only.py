"""Tokens behind the last full word have no bit.

`vocab // 32` rounds down. With 70 tokens that leaves two words, and the last six tokens are forbidden for ever, end-
of-text among them if it is the last one. Round up, and fill the last word with zeros.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Rounded down."""
    full = len(allowed) // 32 * 32
    return np.packbits(allowed[:full], bitorder="little").view("<u4").astype(np.uint32)
