"""Neighbouring tokens are dealt out to the words in turn.

Word and bit have changed places: `t // 32` is the word, `t % 32` the bit, so a word holds 32 neighbours. A kernel
that looks after 32 neighbouring logits then reads one word, and not a bit of each.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def pack(allowed: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """Token t in word t % words."""
    num_words = (len(allowed) + 31) // 32
    words = np.zeros(num_words, dtype=np.uint64)
    tokens = np.flatnonzero(allowed)
    np.add.at(words, tokens % num_words, np.uint64(1) << (tokens // num_words).astype(np.uint64))
    return words.astype(np.uint32)
