"""In the words of itertools."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile


def longest_hit(keys: Iterable[bytes], find: Callable[[bytes], int | None]) -> list[int]:
    """As long as there is something."""
    found = takewhile(lambda block: block is not None, map(find, keys))
    return [block for block in found if block is not None]
