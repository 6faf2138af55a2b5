"""Where the text is a whole match, only ending tokens are allowed.

It is a match, so why go on? Because it may be the beginning of a longer one: `no` of `no|nope`, 12 of 125. Which of
them is meant is the model's choice. `may_end` opens a way out; it does not close the other ways.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.masks import Words, set_bits
from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    """The shortest match."""

    def allowed_mask(self, out: Words) -> None:
        """Out at the first occasion."""
        out[:] = 0 if self.is_complete else self._walk.mask()
        set_bits(out, self._ending_ids, self.is_complete)

    def accept(self, ids: Sequence[int]) -> int:
        """Nothing but an ending follows a match."""
        for count, token in enumerate(ids):
            if self._has_ended:
                return count
            if token in self._ending_ids:
                if not self._walk.may_end:
                    return count
                self._has_ended = True
            elif self._walk.may_end or not self._walk.advance(token):
                return count
        return len(ids)
