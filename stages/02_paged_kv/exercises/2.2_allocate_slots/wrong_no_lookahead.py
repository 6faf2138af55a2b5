"""There is no room for what lies ahead.

Tokens that are only guessed are computed like all others, so their keys and values need slots as well. The room must
reach to `upto + lookahead`. In this stage lookahead is 0, and the fault would show up two notebooks later.
"""

from __future__ import annotations

from stage1.request import Request
from stage2.kv_manager import PagedKVManager as Reference


class PagedKVManager(Reference):
    """Up to, and no further."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """The third argument is not used."""
        return super().allocate_slots(req, upto)
