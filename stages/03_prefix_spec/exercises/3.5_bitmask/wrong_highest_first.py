"""The first token of a word gets its highest bit.

That is how a number is written, from left to right, and also how `np.packbits` packs if nobody says otherwise.
Whoever unpacks here shifts by `t % 32` and takes the lowest bit, so token t must be worth 2 to the power of `t % 32`:
ask for `bitorder="little"`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """As numbers are written."""
    padded = np.zeros((len(allowed) + 31) // 32 * 32, dtype=np.bool_)
    padded[: len(allowed)] = allowed
    return np.packbits(padded).view(">u4").astype(np.uint32)
