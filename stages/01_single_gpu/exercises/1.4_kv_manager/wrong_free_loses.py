"""A freed block does not come back.

``free`` has two halves: the request no longer owns the block, and the block is free again. Without the second half
each request that ends makes the cache one block smaller, until nobody gets one.
"""

from __future__ import annotations

from stage1.kv_manager import OneBlockKVManager as Reference
from stage1.request import Request


class OneBlockKVManager(Reference):
    """Leaks a block a request."""

    def free(self, req: Request) -> None:
        """Only the first half."""
        self._owned.pop(req.req_id, None)
