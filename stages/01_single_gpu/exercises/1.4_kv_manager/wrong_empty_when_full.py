"""A full cache answers with an empty list.

An empty list says: you have what you need, go on. Without a free block the answer is ``None``, which makes the
scheduler wait. With ``[]`` the request would run without memory of its own.
"""

from __future__ import annotations

from stage1.kv_manager import OneBlockKVManager as Reference
from stage1.request import Request


class OneBlockKVManager(Reference):
    """Cannot say no."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """[] for everything that is not a new block."""
        if upto + lookahead > self.block_size:
            raise ValueError("too long")
        if req.req_id in self._owned or not self._free:
            return []
        self._owned[req.req_id] = block = self._free.pop()
        return [block]
