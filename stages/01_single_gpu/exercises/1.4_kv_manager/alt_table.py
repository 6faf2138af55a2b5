"""Keeps a table of owners by block, and looks for a free row."""

from __future__ import annotations

from stage1.kv_manager import OneBlockKVManager as Reference
from stage1.request import Request


class OneBlockKVManager(Reference):
    """The lowest free block goes first."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.owner_of: list[str | None] = [None] * num_blocks

    @property
    def usage(self) -> float:
        """Share of the rows that have an owner."""
        return 1 - self.owner_of.count(None) / self.num_blocks

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """The first row without an owner."""
        if upto + lookahead > self.block_size:
            raise ValueError(f"{req.req_id} asks for {upto + lookahead} tokens; a block has {self.block_size}")
        if req.req_id in self.owner_of:
            return []
        if None not in self.owner_of:
            return None
        block = self.owner_of.index(None)
        self.owner_of[block] = req.req_id
        return [block]

    def free(self, req: Request) -> None:
        """Clear the rows of ``req``."""
        self.owner_of = [None if owner == req.req_id else owner for owner in self.owner_of]
