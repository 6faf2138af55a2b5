"""Blocks are taken as far as they go, and then the answer is no.

`None` tells the scheduler that nothing happened: it will preempt someone and ask again, or let the request wait.
Blocks taken on the way to a refusal are missing for everyone else. Compare with `num_free` first, then take all or
nothing.
"""

from __future__ import annotations

from stage1.request import Request
from stage2.kv_manager import PagedKVManager as Reference


class PagedKVManager(Reference):
    """Half an allocation."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """One block after the other."""
        owned = self._blocks.setdefault(req.req_id, [])
        new = []
        for _ in range(-(-(upto + lookahead) // self.block_size) - len(owned)):
            if self._pool.num_free == 0:
                return None
            block = self._pool.take(1)[0]
            owned.append(block)
            new.append(block)
        return new
