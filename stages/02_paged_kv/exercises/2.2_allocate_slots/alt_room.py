"""Keeps an owner for each block and counts room in tokens."""

from __future__ import annotations

from stage1.interfaces import Hit
from stage1.request import Request
from stage2.block_pool import BlockPool


class PagedKVManager:
    """``owned`` holds (request, block) in the order in which they were taken."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.num_blocks, self.block_size = pool.num_blocks, block_size
        self.pool = pool
        self.owned: list[tuple[str, int]] = []

    @property
    def usage(self) -> float:
        """0..1."""
        return len(self.owned) / self.num_blocks

    def lookup(self, req: Request) -> Hit:
        """Nothing."""
        return Hit()

    def adopt(self, req: Request, hit: Hit) -> None:
        """Nothing."""

    def commit(self, req: Request) -> None:
        """Nothing."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Add blocks until there is room."""
        room = sum(self.block_size for owner, _ in self.owned if owner == req.req_id)
        count = 0
        while room < upto + lookahead:
            room += self.block_size
            count += 1
        if count > self.pool.num_free:
            return None
        new = self.pool.take(count)
        self.owned += [(req.req_id, block) for block in new]
        return new

    def free(self, req: Request) -> None:
        """From the end."""
        for owner, block in reversed(self.owned):
            if owner == req.req_id:
                self.pool.give_back(block)
        self.owned = [(owner, block) for owner, block in self.owned if owner != req.req_id]
