"""Says first whether a token may follow, and writes the mask bit by bit where endings are concerned."""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.masks import WORD, Words
from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    """The same, with the questions in another order."""

    def allowed_mask(self, out: Words) -> None:
        """What may follow."""
        out.fill(0)
        if not self._has_ended:
            out |= self._walk.mask()
        for token in self._ending_ids:
            word, bit = divmod(token, WORD)
            rest = int(out[word]) & ~(1 << bit)
            out[word] = rest | int(self._has_ended or self._walk.may_end) << bit

    def accept(self, ids: Sequence[int]) -> int:
        """How many follow."""
        count = 0
        while count < len(ids) and not self._has_ended and self._takes(ids[count]):
            count += 1
        return count

    def _takes(self, token: int) -> bool:
        if token not in self._ending_ids:
            return self._walk.advance(token)
        self._has_ended = self._walk.may_end
        return self._has_ended
