"""No links of its own: an ordered dict, whose entries are linked inside, does the same in constant time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class BlockPool:
    """The keys are the free blocks, the oldest first."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = OrderedDict.fromkeys(range(num_blocks))
        self._owners = dict.fromkeys(range(num_blocks), 0)

    @property
    def num_free(self) -> int:
        """Entries."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """The first entries."""
        if len(self._free) < count:
            raise ValueError(f"only {len(self._free)} are free")
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        self._owners.update(dict.fromkeys(taken, 1))
        return taken

    def share(self, block: int) -> None:
        """Not an entry any more."""
        self._free.pop(block, None)
        self._owners[block] += 1

    def give_back(self, block: int) -> None:
        """An entry again after the last owner."""
        if not self._owners[block]:
            raise ValueError(f"nobody has {block}")
        self._owners[block] -= 1
        if not self._owners[block]:
            self._free[block] = None

    def ref_count(self, block: int) -> int:
        """Owners."""
        return self._owners[block]

    def free_blocks(self) -> Iterator[int]:
        """In order."""
        yield from self._free
