"""A block is free as soon as one of its owners gives it back.

The others still read and write it. Count the owner off first, and let the block join the free list only if that was the
last one. Otherwise someone is handed a block whose content another request needs.
"""

from __future__ import annotations

from stage2.block_pool import BlockPool as Reference


class BlockPool(Reference):
    """Forgets the other owners."""

    def give_back(self, block: int) -> None:
        """On the list at once."""
        if self._ref_count[block] == 0:
            raise ValueError("no owner")
        self._ref_count[block] -= 1
        self._append(block)
