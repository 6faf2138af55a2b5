"""What a block holds is forgotten when its last owner leaves.

Nothing is erased by that: keys and values stay in memory until somebody writes over them. Forgotten so early, nobody
but requests that run at the same time could share anything. Forget in `take`, at the last moment.
"""

from __future__ import annotations

from stage3.prefix.cached_pool import CachedBlockPool as Reference


class CachedBlockPool(Reference):
    """Tidies up."""

    def give_back(self, block: int) -> None:
        """Free, and empty."""
        self._pool.give_back(block)
        if self._pool.ref_count(block) == 0:
            self.forget(block)
