"""`take` notices only on the way that too few blocks are free.

What it had taken by then has an owner on paper and nobody who knows of it, so nobody gives it back: the pool has become
smaller. Compare `count` with `num_free` before the first block is taken.
"""

from __future__ import annotations

from stage2.block_pool import BlockPool as Reference


class BlockPool(Reference):
    """One after the other, while there are any."""

    def take(self, count: int) -> list[int]:
        """Raises in the middle."""
        taken = []
        for _ in range(count):
            block = self._next[self._end]
            if block == self._end:
                raise ValueError("none is free")
            self._unlink(block)
            self._ref_count[block] = 1
            taken.append(block)
        return taken
