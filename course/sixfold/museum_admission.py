"""The bug museum, second floor: a manager that is too kind to newcomers.

Owns the fault; what is wrong is told in the notebook that shows it. Every request gets the right tokens, so it must be
found from the trace.

vLLM: none; the fault is of engines in general.
"""

from __future__ import annotations

from stage1.request import Request
from stage2.kv_manager import PagedKVManager


class SuspectAdmissionKVManager(PagedKVManager):
    """A ``KVCacheManager`` for steps of up to ``PIECE`` tokens."""

    PIECE = 16

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Further blocks for tokens ``[0, upto + lookahead)``; ``None`` and nothing is taken if too few are free."""
        if req.req_id not in self._blocks:
            upto = self.first_room(upto)
        return super().allocate_slots(req, upto, lookahead)

    def first_room(self, upto: int) -> int:
        """For how many tokens a request needs room when it comes in."""
        return min(upto, self.PIECE)
