"""Masks over the vocabulary: one bit a token, 32 to a word, as they travel to the device.

Owns the packing and a bounded store of masks. Does not know grammars.

    token        0  1  2  3 … 31 | 32 33 …          bit t % 32 of word t // 32, lowest first
    allowed      1  0  1  0 …  0 |  1  0 …          words [0b101, 0b1, …]

vLLM: ``v1/structured_output/backend_types.py``, ``v1/structured_output/__init__.py`` (``grammar_bitmask``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]  # [words of the vocabulary]

WORD = 32  # bits
MAX_STORED_BYTES = 64 * 2**20


def num_words(vocab_size: int) -> int:
    """Words of a mask; the bits behind the last token are 0."""
    return -(-vocab_size // WORD)


def pack(allowed: npt.NDArray[np.bool_]) -> Words:
    """[vocab] → words."""
    padded = np.zeros(num_words(len(allowed)) * WORD, dtype=np.bool_)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def unpack(words: Words, vocab_size: int) -> npt.NDArray[np.bool_]:
    """Words → [vocab]."""
    return np.unpackbits(words.astype("<u4", copy=False).view(np.uint8), bitorder="little")[:vocab_size].astype(
        np.bool_
    )


def set_bits(words: Words, tokens: Iterable[int], allowed: bool) -> None:
    """Allow or forbid ``tokens``, in place."""
    for token in tokens:
        bit = np.uint32(1 << token % WORD)
        if allowed:
            words[token // WORD] |= bit
        else:
            words[token // WORD] &= ~bit


class MaskStore:
    """The masks used last, of all grammars of a vocabulary: making one takes a walk over all its tokens."""

    def __init__(self, max_bytes: int = MAX_STORED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()  # grammars are compiled, and make their first masks, beside the step loop
        self._masks: OrderedDict[tuple[object, bytes, int], Words] = OrderedDict()

    def __len__(self) -> int:
        return len(self._masks)

    def get(self, key: tuple[object, bytes, int], make: Callable[[], Words]) -> Words:
        """The mask of ``key``, not to be written to; ``make`` makes it where it is not known (any more).

        Args:
            key: which grammar, and the place in it.
            make: makes the mask.
        """
        with self._lock:
            if key in self._masks:
                self._masks.move_to_end(key)
                return self._masks[key]
        words = make()
        with self._lock:
            if key not in self._masks:
                self._masks[key] = words
                self._bytes += words.nbytes + len(key[1])
            while self._bytes > self._max_bytes and len(self._masks) > 1:
                old, dropped = self._masks.popitem(last=False)
                self._bytes -= dropped.nbytes + len(old[1])
        return words
