"""Tokens are accepted behind an ending one.

The mask would not have let them through, but not everything that is accepted was drawn under this mask: several
tokens can arrive at once, from a guess that was made in advance. Behind the end the answer is how many came before
it, whatever follows in `ids`.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage3.grammar.matcher import Matcher as Reference


class Matcher(Reference):
    """Does not ask whether it is over."""

    def accept(self, ids: Sequence[int]) -> int:
        """Goes on."""
        for count, token in enumerate(ids):
            if token in self._ending_ids:
                if not self._walk.may_end:
                    return count
                self._has_ended = True
            elif not self._walk.advance(token):
                return count
        return len(ids)
