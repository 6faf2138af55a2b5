"""The number of blocks is rounded down.

The tokens behind the last full block need room as well, so a block that is only begun counts. 7 tokens in blocks of 5
take two. In Python `-(-n // size)` rounds up without leaving the whole numbers.
"""

from __future__ import annotations

from stage1.request import Request
from stage2.kv_manager import PagedKVManager as Reference


class PagedKVManager(Reference):
    """Full blocks only."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """The rest of the tokens has no room."""
        owned = self._blocks.get(req.req_id, [])
        missing = (upto + lookahead) // self.block_size - len(owned)
        if missing <= 0:
            return []
        if missing > self._pool.num_free:
            return None
        new = self._pool.take(missing)
        self._blocks[req.req_id] = owned + new
        return new
