"""Either the whole request is in the cache, or nothing of it is used.

Most hits are a part: requests share a system prompt or the turns so far, and end differently. What is there up to the
first gap can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def longest_hit(keys: Iterable[bytes], find: Callable[[bytes], int | None]) -> list[int]:
    """All of it."""
    blocks = []
    for key in keys:
        block = find(key)
        if block is None:
            return []
        blocks.append(block)
    return blocks
