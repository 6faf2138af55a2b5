"""A block is handed out for new content, and can still be found as what it held before.

The next request with the old beginning finds it, shares it, and reads keys and values of somebody else's text. Forget
every block in `take`, in both directions.
"""

from __future__ import annotations

from stage3.prefix.cached_pool import CachedBlockPool as Reference


class CachedBlockPool(Reference):
    """Remembers too well."""

    def take(self, count: int) -> list[int]:
        """Only the inner pool's answer."""
        return self._pool.take(count)
