"""Block 0 is taken for "nothing found".

0 is false in Python, and the id of a block. It ends a hit wherever it comes: nothing is wrong with the answers, only
with the time they take. Ask `is None`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def longest_hit(keys: Iterable[bytes], find: Callable[[bytes], int | None]) -> list[int]:
    """Until one is false."""
    blocks: list[int] = []
    for key in keys:
        block = find(key)
        if not block:
            break
        blocks.append(block)
    return blocks
