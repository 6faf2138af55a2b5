"""A pool of KV blocks that remembers what the blocks hold, until it hands them out for something else.

Owns the two directions between a block and the name of its content. Does not know tokens or how a name is made.

A block keeps its content when its last owner leaves, and stands in the free list with it. Whoever needs that content
takes it out of the list, wherever it stands; only a block that comes to the head and is handed out for new content is
forgotten. So the free list is the cache, least recently used first, and caching takes no memory from anyone.

    free      head ▸ 5 ⇄ 2 ⇄ 7 ⇄ 4 ◂ tail      take(1) hands out 5, and forgets what it held
    content          –   c   b   a             find(c) is 2 until then; the tail of a chain is given back first

Two blocks may hold the same, computed at the same time for two requests: ``find`` gives the one published first, and
when that is handed out, the next.

vLLM: ``v1/core/block_pool.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from stage2.block_pool import BlockPool
from stage3.prefix.block_hash import BlockKey


class CachedBlockPool:
    """``pool``, and what its blocks hold. Every operation but ``reset`` is O(1) for each block it touches."""

    def __init__(self, pool: BlockPool) -> None:
        self.num_blocks = pool.num_blocks
        self._pool = pool
        self._key_of: list[BlockKey | None] = [None] * pool.num_blocks
        self._block_of: dict[BlockKey, int] = {}
        # Further blocks with the same content, in the order in which they were published: rare, hence beside.
        self._twins: dict[BlockKey, dict[int, None]] = {}

    @property
    def num_free(self) -> int:
        """Blocks without an owner, whether they hold something or not."""
        return self._pool.num_free

    def take(self, count: int) -> list[int]:
        """The ``count`` blocks that have been free longest, each with one owner now and their content forgotten.

        Raises:
            ValueError: fewer are free; none is taken.
        """
        taken = self._pool.take(count)
        for block in taken:
            if self._key_of[block] is not None:
                self.forget(block)
        return taken

    def share(self, block: int) -> None:
        """One more owner for ``block``, which keeps its content; a free one leaves the free list."""
        self._pool.share(block)

    def give_back(self, block: int) -> None:
        """One owner fewer; without any, ``block`` joins the free list at its tail, with its content.

        Raises:
            ValueError: it has no owner.
        """
        self._pool.give_back(block)

    def publish(self, block: int, key: BlockKey) -> None:
        """From now on ``block`` can be found as ``key``.

        Raises:
            ValueError: it holds something else, or nobody owns it, so that it may be handed out at any time.
        """
        if self._key_of[block] is not None:
            raise ValueError(f"block {block} has been published already: it must be taken anew before it holds more")
        if self._pool.ref_count(block) == 0:
            raise ValueError(f"block {block} has no owner: publish it before it is given back")
        self._key_of[block] = key
        if self._block_of.setdefault(key, block) != block:
            self._twins.setdefault(key, {})[block] = None

    def find(self, key: BlockKey) -> int | None:
        """A block that holds ``key``, in use or free, or ``None``."""
        return self._block_of.get(key)

    def key_of(self, block: int) -> BlockKey | None:
        """What ``block`` holds, as far as it was published."""
        return self._key_of[block]

    def forget(self, block: int) -> None:
        """``block`` can no longer be found; others with the same content can. Not published, nothing changes."""
        key = self._key_of[block]
        if key is None:
            return
        self._key_of[block] = None
        twins = self._twins.get(key)
        if twins is None:  # nearly always
            del self._block_of[key]
            return
        if block in twins:
            del twins[block]
        else:
            self._block_of[key] = next(iter(twins))
            del twins[self._block_of[key]]
        if not twins:
            del self._twins[key]

    def reset(self) -> bool:
        """Forget everything; ``False`` and nothing is forgotten while a block has an owner. O(blocks)."""
        if self.num_free < self.num_blocks:
            return False
        self._key_of = [None] * self.num_blocks
        self._block_of.clear()
        self._twins.clear()
        return True

    def cached_blocks(self) -> Iterator[int]:
        """The blocks that hold something published; for pictures and tests, O(blocks)."""
        return (block for block, key in enumerate(self._key_of) if key is not None)
