"""A pool in the plainest words: an ordered collection of free blocks, and a count of owners."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice


class PlainPool:
    """Says what ``BlockPool`` must do. A dict keeps its keys in the order in which they came."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.free = dict.fromkeys(range(num_blocks))
        self.owners = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """Free blocks."""
        return len(self.free)

    def take(self, count: int) -> list[int]:
        """The first ``count`` keys."""
        if count > len(self.free):
            raise ValueError("too few are free")
        taken = list(islice(self.free, count))
        for block in taken:
            self.share(block)
        return taken

    def share(self, block: int) -> None:
        """One more owner; not free."""
        self.owners[block] += 1
        self.free.pop(block, None)

    def give_back(self, block: int) -> None:
        """One owner fewer; perhaps free, as the last key."""
        if self.owners[block] == 0:
            raise ValueError("no owner")
        self.owners[block] -= 1
        if self.owners[block] == 0:
            self.free[block] = None

    def ref_count(self, block: int) -> int:
        """Owners."""
        return self.owners[block]

    def free_blocks(self) -> Iterator[int]:
        """In order."""
        return iter(self.free)
