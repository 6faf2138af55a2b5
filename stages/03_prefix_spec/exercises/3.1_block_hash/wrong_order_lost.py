"""The tokens are sorted, or counted, before they are hashed.

A text is not a set of tokens: "dog bites man" and "man bites dog" have the same ones. Hash the tokens in the order in
which they stand.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Every order is the same."""
    return hashlib.sha256(parent + struct.pack(f"<{len(token_ids)}q", *sorted(token_ids))).digest()
