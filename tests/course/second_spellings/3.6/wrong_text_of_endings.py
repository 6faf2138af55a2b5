"""Sets bits only where they are to be 1."""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.masks import Words, set_bits
from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    def allowed_mask(self, out: Words) -> None:
        if self._has_ended:
            out.fill(0)
        else:
            out[:] = self._walk.mask()
        set_bits(out, [token for token in self._ending_ids if self.is_complete], True)

    def accept(self, ids: Sequence[int]) -> int:
        accepted = 0
        while accepted < len(ids) and not self._has_ended:
            token = ids[accepted]
            self._has_ended = self._walk.may_end and token in self._ending_ids
            if not self._has_ended and not self._walk.advance(token):
                break
            accepted += 1
        return accepted
