"""The bug museum, prefix caching: a name for blocks with one reduced fault.

Owns the fault. It is right for most requests, so it must be found from what goes wrong. What is wrong is not told here
but in the notebook that shows it.

vLLM: none; the fault is of engines in general.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence


def suspect_hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """32 bytes for a block: how far it stands from where the chain starts, and what its tokens are."""
    place = (int.from_bytes(parent[:8], "little") + 1) % 2**64
    tokens = hashlib.sha256(struct.pack(f"<{len(token_ids)}q", *token_ids)).digest()
    return place.to_bytes(8, "little") + tokens[:24]
