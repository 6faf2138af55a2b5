"""A match is a match."""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.masks import Words, set_bits
from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    def allowed_mask(self, out: Words) -> None:
        if self._has_ended or self._walk.may_end:
            out.fill(0)
            set_bits(out, self._ending_ids, True)
            return
        out[:] = self._walk.mask()
        set_bits(out, self._ending_ids, False)

    def accept(self, ids: Sequence[int]) -> int:
        accepted = 0
        for token in ids:
            if self._has_ended:
                break
            if self._walk.may_end:
                if token not in self._ending_ids:
                    break
                self._has_ended = True
            elif token in self._ending_ids or not self._walk.advance(token):
                break
            accepted += 1
        return accepted
