"""A missing block is left out, and the search goes on behind it.

The blocks that follow move to the place of the missing one: the block table says that they hold tokens which they do
not hold. And even at the right place they would be of no use, since the engine computes from one token on to the end,
and cannot leave out what stands behind a gap. Stop at the first one that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def longest_hit(keys: Iterable[bytes], find: Callable[[bytes], int | None]) -> list[int]:
    """All that are there."""
    return [block for block in map(find, keys) if block is not None]
