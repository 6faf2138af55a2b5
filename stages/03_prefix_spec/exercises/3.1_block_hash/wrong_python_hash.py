"""Python's own `hash` makes the name.

It is made for dictionaries, which look at the keys again when two hashes agree; here nobody looks again. It has 8
bytes, clashes can be computed by hand (0 and 2**61 - 1 have the same), and for bytes it differs from process to
process. Use a hash that was made to withstand people: `hashlib.sha256`.
"""

from __future__ import annotations

from collections.abc import Sequence


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Quick, and not a name."""
    return hash((parent, tuple(token_ids))).to_bytes(8, "little", signed=True)
