"""Every call hands out blocks for all of the request's tokens, as if it had none.

`upto` counts from the request's first token, and it has blocks for most of them already. Subtract what it owns; only
the difference is new. Otherwise each decode step takes the whole request's blocks once more.
"""

from __future__ import annotations

from stage1.request import Request
from stage2.kv_manager import PagedKVManager as Reference


class PagedKVManager(Reference):
    """Begins anew each time."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Not the difference."""
        wanted = -(-(upto + lookahead) // self.block_size)
        if wanted > self._pool.num_free:
            return None
        new = self._pool.take(wanted)
        self._blocks[req.req_id] = [*self._blocks.get(req.req_id, []), *new]
        return new
