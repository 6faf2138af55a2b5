"""A remembering pool in the plainest words: three lists, searched through from the front each time."""

from __future__ import annotations

from stage2.block_pool import BlockPool


class PlainCachedPool:
    """Says what ``CachedBlockPool`` must do."""

    def __init__(self, pool: BlockPool) -> None:
        self.num_blocks = pool.num_blocks
        self.free = list(range(self.num_blocks))  # the one that is handed out next first
        self.owners = [0] * self.num_blocks
        self.published: list[tuple[int, bytes]] = []  # in order of publication

    @property
    def num_free(self) -> int:
        """Free blocks."""
        return len(self.free)

    def take(self, count: int) -> list[int]:
        """The first ones."""
        if count > len(self.free):
            raise ValueError("too few are free")
        taken = self.free[:count]
        for block in taken:
            self.share(block)
            self.forget(block)
        return taken

    def share(self, block: int) -> None:
        """One owner more; not free."""
        self.owners[block] += 1
        self.free = [other for other in self.free if other != block]

    def give_back(self, block: int) -> None:
        """One owner fewer; perhaps the last of the free ones."""
        if self.owners[block] == 0:
            raise ValueError("no owner")
        self.owners[block] -= 1
        if self.owners[block] == 0:
            self.free.append(block)

    def publish(self, block: int, key: bytes) -> None:
        """A line more."""
        if self.key_of(block) is not None or self.owners[block] == 0:
            raise ValueError("not now")
        self.published.append((block, key))

    def find(self, key: bytes) -> int | None:
        """The first line with this key."""
        return next((block for block, held in self.published if held == key), None)

    def key_of(self, block: int) -> bytes | None:
        """The line of this block."""
        return next((key for other, key in self.published if other == block), None)

    def forget(self, block: int) -> None:
        """Its line goes."""
        self.published = [line for line in self.published if line[0] != block]
