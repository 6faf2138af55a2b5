"""The name is made from the block's own tokens, and the parent does not count.

A token's keys and values depend on everything before it: the same sixteen tokens behind another beginning are other
numbers in the cache. With this name the second text is answered from the first one's cache, and nothing raises. Hash
the parent's name with the tokens.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """One block alone."""
    return hashlib.sha256(struct.pack(f"<{len(token_ids)}q", *token_ids)).digest()
