"""What each call must do, token by token."""

from __future__ import annotations

from typing import Any


class PlainManager:
    """Walks over all tokens of a request and asks each whether it begins a block."""

    def __init__(self, pool: Any, block_size: int) -> None:
        self.pool, self.block_size = pool, block_size
        self.rows: dict[str, list[int]] = {}

    def allocate_slots(self, req: Any, upto: int, lookahead: int = 0) -> list[int] | None:
        """A block for each token that begins one, unless the request has it."""
        row = self.rows.get(req.req_id, [])
        begins = [token for token in range(upto + lookahead) if token % self.block_size == 0]
        missing = begins[len(row) :]
        if len(missing) > self.pool.num_free:
            return None
        new = [self.pool.take(1)[0] for _ in missing]
        self.rows[req.req_id] = [*row, *new]
        return new

    def free(self, req: Any) -> None:
        """From the last block to the first."""
        row = self.rows.pop(req.req_id, [])
        while row:
            self.pool.give_back(row.pop())
