"""Counts what the walk takes, and the endings."""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.masks import Words, set_bits
from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    def allowed_mask(self, out: Words) -> None:
        out[:] = self._walk.mask() if not self._has_ended else 0
        set_bits(out, self._ending_ids, self._has_ended or self._walk.may_end)

    def accept(self, ids: Sequence[int]) -> int:
        accepted = 0
        for token in ids:
            is_ending = token in self._ending_ids
            if not (self._walk.may_end if is_ending else self._walk.advance(token)):
                break
            self._has_ended = self._has_ended or is_ending
            accepted += 1
        return accepted
