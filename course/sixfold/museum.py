"""The bug museum: parts with one reduced fault each, for the cells that say "break it".

Owns the faults. Each is right enough to run, so it must be found from what it does: its logits, its trace, its steps.
What is wrong is not told here but in the notebook that shows it.

vLLM: none; the faults are of engines in general.
"""

from __future__ import annotations

from stage1.kv_manager import OneBlockKVManager
from stage1.request import Request


class SuspectKVManager(OneBlockKVManager):
    """A ``KVCacheManager`` that serves one request at a time well."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """A block on the first call, nothing new afterwards, ``None`` while none is free."""
        if upto + lookahead > self.block_size:
            raise ValueError(f"{req.req_id} needs {upto + lookahead:,} tokens; a block has {self.block_size:,}")
        if req.req_id in self._owned:
            return []
        if not self._free:
            return None
        self._owned[req.req_id] = block = self._free[-1]
        return [block]
