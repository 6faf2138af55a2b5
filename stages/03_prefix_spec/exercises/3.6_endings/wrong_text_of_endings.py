"""An ending token with a text counts as that text where the grammar allows it.

Setting bits is half the work: a stop token like `.` may be in the walk's mask because of its text, and there it must
be taken out. Otherwise the engine stops at it, as it was asked to, and the output ends in the middle of a match.
Ending tokens are *set* to whether the text may end: true or false.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.masks import Words, set_bits
from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    """Adds, and never takes away."""

    def allowed_mask(self, out: Words) -> None:
        """The walk's mask, and the endings where it may end."""
        out[:] = 0 if self._has_ended else self._walk.mask()
        if self.is_complete:
            set_bits(out, self._ending_ids, True)

    def accept(self, ids: Sequence[int]) -> int:
        """As text first, if it can be."""
        for count, token in enumerate(ids):
            if self._has_ended:
                return count
            if token in self._ending_ids and self._walk.may_end:
                self._has_ended = True
            elif not self._walk.advance(token):
                return count
        return len(ids)
