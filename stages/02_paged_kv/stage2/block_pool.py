"""The pool of KV blocks: who is free, in which order, and how many owners each block has.

Owns the free list and the reference counts. Does not know requests, tokens or memory: blocks are numbers. Every
operation is O(1) for each block it touches, whatever the size of the pool, because the free list is doubly linked
through two arrays and any block can be taken out of its middle.

    free      head ▸ 3 ⇄ 0 ⇄ 2 ◂ tail        taken from the head, given back at the tail
    ref       [0, 1, 0, 0, 2]                block 1 has one owner, block 4 two, the others are free

vLLM: ``v1/core/block_pool.py``, ``v1/core/kv_cache_utils.py`` (``FreeKVCacheBlockQueue``).
"""

from __future__ import annotations

from collections.abc import Iterator


class BlockPool:
    """Blocks ``0 … num_blocks - 1``, all free at first and handed out in this order."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"the pool has {num_blocks} blocks; at least 1 is needed: give the KV cache more memory")
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self._ref_count = [0] * num_blocks
        # The entry after the last block is the list's two ends in one: next of it is the head, previous the tail.
        self._end = num_blocks
        self._next = [*range(1, num_blocks + 1), 0]
        self._previous = [num_blocks, *range(num_blocks)]

    def take(self, count: int) -> list[int]:
        """The ``count`` blocks that have been free longest, each with one owner now.

        Raises:
            ValueError: fewer are free; none is taken.
        """
        if count > self.num_free:
            raise ValueError(f"{count} blocks are asked for and {self.num_free} of {self.num_blocks} are free")
        taken = []
        for _ in range(count):
            block = self._next[self._end]
            self._unlink(block)
            self._ref_count[block] = 1
            taken.append(block)
        return taken

    def share(self, block: int) -> None:
        """One more owner for ``block``; a free one is taken off the free list, wherever it stands there."""
        if self._ref_count[block] == 0:
            self._unlink(block)
        self._ref_count[block] += 1

    def give_back(self, block: int) -> None:
        """One owner fewer; without any, ``block`` joins the free list at its tail.

        Raises:
            ValueError: it has no owner.
        """
        if self._ref_count[block] == 0:
            raise ValueError(f"block {block} is given back but has no owner")
        self._ref_count[block] -= 1
        if self._ref_count[block] == 0:
            self._append(block)

    def ref_count(self, block: int) -> int:
        """Owners of ``block``."""
        return self._ref_count[block]

    def free_blocks(self) -> Iterator[int]:
        """The free blocks from head to tail; for pictures and tests, O(free)."""
        block = self._next[self._end]
        while block != self._end:
            yield block
            block = self._next[block]

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.num_free -= 1

    def _append(self, block: int) -> None:
        tail = self._previous[self._end]
        self._next[tail], self._previous[block] = block, tail
        self._next[block], self._previous[self._end] = self._end, block
        self.num_free += 1
