"""How far an output has come in its grammar, and what may follow.

Owns the end of an output: tokens that end it (end-of-text, the request's stop tokens) are allowed where the text may
end and nowhere else, and nothing follows them. The text itself is the ``Walk``'s, of which there are two: our automaton
(``token_fsm``) and llguidance's parser (``llguidance_backend``). Does not know requests.

vLLM: ``v1/structured_output/backend_types.py`` (``StructuredOutputGrammar``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stage3.grammar.masks import Words, set_bits


class Walk(Protocol):
    """A place in a grammar. Knows nothing that ends an output."""

    @property
    def may_end(self) -> bool:
        """Whether the text so far is a whole match."""

    def mask(self) -> Words:
        """The tokens that keep a match possible; not to be written to."""

    def advance(self, token: int) -> bool:
        """Go on by ``token``; ``False`` and nothing has changed if it cannot follow."""

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` tokens."""


class Grammar(Protocol):
    """A constraint that is ready to be used, by any number of outputs."""

    def start(self) -> Walk:
        """The beginning of an output."""


class Matcher:
    """One output in one grammar.

    Args:
        walk: a fresh one.
        ending_ids: tokens that end the output; whatever text they have is not the grammar's.
    """

    def __init__(self, walk: Walk, ending_ids: frozenset[int]) -> None:
        self._walk = walk
        self._ending_ids = ending_ids
        self._has_ended = False

    @property
    def has_ended(self) -> bool:
        """Whether an ending token was accepted."""
        return self._has_ended

    @property
    def is_complete(self) -> bool:
        """Whether the output is a whole match as it is."""
        return self._has_ended or self._walk.may_end

    def allowed_mask(self, out: Words) -> None:
        """Write what may follow into ``out`` [words]; after the end, ending tokens alone."""
        out[:] = 0 if self._has_ended else self._walk.mask()
        set_bits(out, self._ending_ids, self.is_complete)

    def accept(self, ids: Sequence[int]) -> int:
        """Go on by ``ids`` up to the first that cannot follow, as nothing can an ending token; returns how many did."""
        for count, token in enumerate(ids):
            if self._has_ended:
                return count
            if token in self._ending_ids:
                if not self._walk.may_end:
                    return count
                self._has_ended = True
            elif not self._walk.advance(token):
                return count
        return len(ids)

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` tokens that were accepted."""
        if count and self._has_ended:
            self._has_ended = False
            count -= 1
        if count:
            self._walk.rollback(count)
