"""The bug museum, paging: a KV manager with one reduced fault.

Owns the fault. It is right enough to run, so it must be found from its trace. What is wrong is not told here but in the
notebook that shows it.

vLLM: none; the fault is of engines in general.
"""

from __future__ import annotations

from stage1.request import Request
from stage2.block_pool import BlockPool
from stage2.kv_manager import PagedKVManager


class SuspectPagedKVManager(PagedKVManager):
    """A ``KVCacheManager`` that serves any number of requests well, as long as there are blocks for all of them."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        super().__init__(pool, block_size)
        self.pool = pool
        self.rows: dict[str, list[int]] = {}

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """One block after the other; if they run out, everything is undone and the answer is ``None``."""
        row = self.rows.setdefault(req.req_id, [])
        owned = len(row)
        while len(row) * self.block_size < upto + lookahead:
            if self.pool.num_free == 0:
                self.undo(row, owned)
                return None
            row += self.pool.take(1)
        return row[owned:]

    def undo(self, row: list[int], owned: int) -> None:
        """Give back what was taken in vain; ``row`` has ``owned`` blocks again."""
        self.release(row)
        del row[owned:]

    def free(self, req: Request) -> None:
        """Give every block back."""
        self.release(self.rows.pop(req.req_id, []))

    def release(self, blocks: list[int]) -> None:
        """Give ``blocks`` back, the last one first; one that is free already is left alone."""
        for block in reversed(blocks):
            if self.pool.ref_count(block) > 0:
                self.pool.give_back(block)
