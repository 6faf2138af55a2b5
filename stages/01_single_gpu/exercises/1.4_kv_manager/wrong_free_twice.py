"""free counts on an owner.

A request that never got a block, or was freed before, may be freed too: an abort can meet a request in any state.
``free`` must then do nothing; ``dict.pop(key, None)`` asks without raising.
"""

from __future__ import annotations

from stage1.kv_manager import OneBlockKVManager as Reference
from stage1.request import Request


class OneBlockKVManager(Reference):
    """Raises on the second free."""

    def free(self, req: Request) -> None:
        """Only for owners."""
        self._free.append(self._owned.pop(req.req_id))
