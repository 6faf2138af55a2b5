"""Lets the pool say no: it takes all or nothing, so its error is the answer."""

from __future__ import annotations

import math
from collections import defaultdict

from stage1.request import Request
from stage2.block_pool import BlockPool
from stage2.kv_manager import PagedKVManager as Reference


class PagedKVManager(Reference):
    """Rows are made when they are first looked at."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        super().__init__(pool, block_size)
        self.pool = pool
        self.rows: defaultdict[str, list[int]] = defaultdict(list)

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Ask, and pass a refusal on."""
        row = self.rows[req.req_id]
        try:
            new = self.pool.take(max(math.ceil((upto + lookahead) / self.block_size) - len(row), 0))
        except ValueError:
            return None
        row.extend(new)
        return new

    def free(self, req: Request) -> None:
        """Pop until the row is empty."""
        row = self.rows[req.req_id]
        while row:
            self.pool.give_back(row.pop())
