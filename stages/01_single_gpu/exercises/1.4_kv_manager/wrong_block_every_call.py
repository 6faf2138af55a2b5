"""Every call hands out a block.

A request keeps its block to its end, so only the first call has something new to return. Look whether the request
owns a block already, and return an empty list then. Otherwise each decode step takes another block until none is
left.
"""

from __future__ import annotations

from stage1.kv_manager import OneBlockKVManager as Reference
from stage1.request import Request


class OneBlockKVManager(Reference):
    """Forgets what a request has."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Always the next free one."""
        if upto + lookahead > self.block_size:
            raise ValueError("too long")
        if not self._free:
            return None
        self._owned[req.req_id] = block = self._free.pop()
        return [block]
