"""free counts on an owner.

A request that never got a block, or was freed before, may be freed too: an abort can meet a request in any state. ``free``
must then do nothing; ``dict.pop(key, None)`` asks without raising.
"""

from stage1.kv_manager import OneBlockKVManager as Reference


class OneBlockKVManager(Reference):
    """Raises on the second free."""

    def free(self, req):
        """Only for owners."""
        self._free.append(self._owned.pop(req.req_id))
