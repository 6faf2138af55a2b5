"""A block that is given back goes to the head of the list.

That is a stack: the block freed last is handed out first. It is right in this stage, and the ruin of the next one,
where a free block still holds keys and values that another request may want: the one that was free longest must go
first. Link the block in at the tail, between the last block and the end.
"""

from __future__ import annotations

from stage2.block_pool import BlockPool as Reference


class BlockPool(Reference):
    """Last in, first out."""

    def _append(self, block: int) -> None:
        """At the wrong end."""
        head = self._next[self._end]
        self._next[self._end], self._previous[head] = block, block
        self._previous[block], self._next[block] = self._end, head
        self.num_free += 1
