"""A request's first block is given back first.

What is given back first is handed out first. Of a request's blocks the first one is worth most: other requests may
begin with the same tokens, and in stage 3 they will find them there. So give the last one back first:
`reversed(blocks)`.
"""

from __future__ import annotations

from stage1.request import Request
from stage2.kv_manager import PagedKVManager as Reference


class PagedKVManager(Reference):
    """From head to tail."""

    def free(self, req: Request) -> None:
        """In the order of the tokens."""
        for block in self._blocks.pop(req.req_id, []):
            self._pool.give_back(block)
