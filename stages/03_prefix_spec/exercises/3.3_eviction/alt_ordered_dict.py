"""One ordered dict is the free list, another one a key's blocks; the inner pool only says how many there are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from stage2.block_pool import BlockPool


class CachedBlockPool:
    """All blocks of a key lie in one dict, the first published first."""

    def __init__(self, pool: BlockPool) -> None:
        self.num_blocks = pool.num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(pool.num_blocks))
        self._owners: dict[int, int] = {}
        self._keys: dict[int, bytes] = {}
        self._blocks: dict[bytes, dict[int, None]] = {}

    @property
    def num_free(self) -> int:
        """Entries of the list."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """From the front."""
        if count > self.num_free:
            raise ValueError("too few are free")
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._owners[block] = 1
            self.forget(block)
        return taken

    def share(self, block: int) -> None:
        """Off the list."""
        self._free.pop(block, None)
        self._owners[block] = self._owners.get(block, 0) + 1

    def give_back(self, block: int) -> None:
        """On the list again after the last owner."""
        left = self._owners.pop(block, 0) - 1
        if left < 0:
            raise ValueError("nobody has it")
        if left:
            self._owners[block] = left
        else:
            self._free[block] = None

    def publish(self, block: int, key: bytes) -> None:
        """Behind those that hold the same."""
        if block in self._keys or block not in self._owners:
            raise ValueError("published already, or free")
        self._keys[block] = key
        self._blocks.setdefault(key, {})[block] = None

    def find(self, key: bytes) -> int | None:
        """The first of them."""
        return next(iter(self._blocks.get(key, ())), None)

    def key_of(self, block: int) -> bytes | None:
        """If any."""
        return self._keys.get(block)

    def forget(self, block: int) -> None:
        """Out of both dicts."""
        key = self._keys.pop(block, None)
        if key is not None:
            del self._blocks[key][block]
            if not self._blocks[key]:
                del self._blocks[key]

    def reset(self) -> bool:
        """Nothing is held by anyone."""
        if self._owners:
            return False
        self._keys.clear()
        self._blocks.clear()
        return True

    def cached_blocks(self) -> Iterator[int]:
        """In no order."""
        return iter(self._keys)
