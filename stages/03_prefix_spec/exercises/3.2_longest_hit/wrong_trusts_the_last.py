"""The last block that is found is taken as a proof that all before it are there.

Its name stands for the whole beginning, but the cache hands out blocks one by one, and an earlier one may have been
handed out for something else. Then there is no block to put into the table. Look at each of them, from the first on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def longest_hit(keys: Iterable[bytes], find: Callable[[bytes], int | None]) -> list[int | None]:
    """Up to the last one that is there."""
    blocks = list(map(find, keys))
    while blocks and blocks[-1] is None:
        blocks.pop()
    return blocks
