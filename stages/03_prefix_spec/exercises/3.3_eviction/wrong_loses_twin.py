"""With one block its content is forgotten, although another block holds the same.

Two requests with one beginning that run at the same time both compute it, so there are two blocks of one name. When one
is handed out, the other one still holds everything, and must be found: look into `_twins`.
"""

from __future__ import annotations

from stage3.prefix.cached_pool import CachedBlockPool as Reference


class CachedBlockPool(Reference):
    """One content, one block."""

    def forget(self, block: int) -> None:
        """The name goes with the block."""
        key = self._key_of[block]
        if key is None:
            return
        self._key_of[block] = None
        self._block_of.pop(key, None)
