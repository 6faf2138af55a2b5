"""A free block that gets an owner by `share` stays on the free list.

`share` is how a request gets a block whose content it can use, and that block may well be free at that moment. Then it
must leave the list, from the middle if it stands there: that is what the links to both sides are for. Otherwise `take`
hands it to someone else.
"""

from __future__ import annotations

from stage2.block_pool import BlockPool as Reference


class BlockPool(Reference):
    """Counts owners only."""

    def share(self, block: int) -> None:
        """The list is not looked at."""
        self._ref_count[block] += 1
