"""Blocks are handed out from the tail of the free list, the one that became free last first.

What became free last is what the next request most likely needs: the turn of the conversation that has just ended.
Hand out from the head: what has been free longest has been of no use to anybody for the longest time.
"""

from __future__ import annotations

from stage3.prefix.cached_pool import CachedBlockPool as Reference


class CachedBlockPool(Reference):
    """Last in, first out."""

    def take(self, count: int) -> list[int]:
        """All are taken, and the first ones given back."""
        order = self._pool.take(self._pool.num_free)
        most = count if count <= len(order) else 0
        for block in order[: len(order) - most]:
            self._pool.give_back(block)
        if count > len(order):
            raise ValueError("too few are free")
        taken = order[len(order) - most :][::-1]
        for block in taken:
            self.forget(block)
        return taken
