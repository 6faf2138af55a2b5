"""The numbers are written behind each other without anything between them.

`1, 23` and `12, 3` and `123` all become the text 123, and a hash of equal bytes is equal. Give every number the same
number of bytes, or write something between them that is no digit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def hash_block(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Where does a number end?"""
    return hashlib.sha256(parent + "".join(map(str, token_ids)).encode()).digest()
