"""Every length is tried, the longest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def longest_hit(keys: Iterable[object], find: Callable[[object], int | None]) -> list[int]:
    """The longest beginning in which nothing is missing."""
    every = [find(key) for key in keys]
    for length in range(len(every), 0, -1):
        beginning = every[:length]
        if None not in beginning:
            return [block for block in beginning if block is not None]
    return []
