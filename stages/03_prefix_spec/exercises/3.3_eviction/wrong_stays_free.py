"""A free block that somebody shares stays in the free list.

Its content is there, but so is its place in the queue: it is handed out to the next one who needs a block, who writes
over what the first one reads. A block with an owner is not free: let the inner pool's `share` take it off the list.
"""

from __future__ import annotations

from stage3.prefix.cached_pool import CachedBlockPool as Reference


class CachedBlockPool(Reference):
    """A hit is only a look."""

    def share(self, block: int) -> None:
        """Counted where there is an owner already."""
        if self._pool.ref_count(block) > 0:
            self._pool.share(block)
