"""The block is taken before the length is checked.

Check first, take then. A request that is refused must leave everything as it was, or the block that it took stays
lost: its owner never runs, so nobody frees it.
"""

from __future__ import annotations

from stage1.kv_manager import OneBlockKVManager as Reference
from stage1.request import Request


class OneBlockKVManager(Reference):
    """Refuses with the block in its hand."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """The check comes last."""
        blocks = []
        if req.req_id not in self._owned:
            if not self._free:
                return None
            self._owned[req.req_id] = block = self._free.pop()
            blocks = [block]
        if upto + lookahead > self.block_size:
            raise ValueError("too long")
        return blocks
