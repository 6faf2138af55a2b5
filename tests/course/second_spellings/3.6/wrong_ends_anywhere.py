"""Endings are not asked about."""

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
        set_bits(out, sorted(self._ending_ids), True)

    def accept(self, ids: Sequence[int]) -> int:
        accepted = 0
        for token in ids:
            if self._has_ended or (token not in self._ending_ids and not self._walk.advance(token)):
                break
            self._has_ended = token in self._ending_ids
            accepted += 1
        return accepted
