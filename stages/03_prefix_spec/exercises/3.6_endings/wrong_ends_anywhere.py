"""Ending tokens are allowed everywhere.

Then the model decides when it is done, and it may be done in the middle of a word or of a JSON object: what it has
written is no match, and nobody notices before it is parsed. An ending token follows where the walk says `may_end`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.masks import Words, set_bits
from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    """The model will know."""

    def allowed_mask(self, out: Words) -> None:
        """Always with the endings."""
        out[:] = 0 if self._has_ended else self._walk.mask()
        set_bits(out, self._ending_ids, True)

    def accept(self, ids: Sequence[int]) -> int:
        """An ending is always accepted."""
        for count, token in enumerate(ids):
            if self._has_ended:
                return count
            if token in self._ending_ids:
                self._has_ended = True
            elif not self._walk.advance(token):
                return count
        return len(ids)
