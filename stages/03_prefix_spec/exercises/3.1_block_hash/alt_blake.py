"""Another strong hash, fed piece by piece."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The parent is the key."""
    state = hashlib.blake2b(key=parent, digest_size=32)
    for token in token_ids:
        state.update(token.to_bytes(8, "big"))
    return state.digest()
