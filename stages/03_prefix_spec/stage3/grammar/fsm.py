"""The automaton of a pattern with one state at a time, made as far as it is walked.

Owns the states that were met, their transitions, and the bounds on both. Does not know tokens.

A state stands for the set of places of the ``Nfa`` that the text so far may have led to. There may be exponentially
many such sets (``.*a.{30}`` has a billion), but a text of n characters meets n of them: each is made when it is met.

    a(b|c)*      {0} ─a▸ {1, 6, 8} ─b▸ {1, 6, 8} …        numbers as in the picture of ``nfa``

Three bounds keep hostile patterns harmless: the size of the ``Nfa``; *fuel*, the work that one operation may take; and
the size of the tables, which are emptied when they are full. So numbers of states are good for one operation only, and
whoever remembers a state keeps its set.

vLLM: ``v1/structured_output/backend_outlines.py`` compiles the whole automaton in advance, in a library.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD, Alphabet, class_of
from stage3.grammar.errors import GrammarError
from stage3.grammar.nfa import END, START, Nfa

States = npt.NDArray[np.int32]
Places = bytes  # states of the Nfa that read a character, and END where the text may end: sorted, four bytes each

FUEL = 500_000  # visits of Nfa states in one operation: 0.2 s on one core of a server's CPU
_MAX_PLACES = 1_000_000  # remembered in all states together: 4 MB
_MAX_CELLS = 1_000_000  # of the transition table: 4 MB
_UNKNOWN = -2


class Machine:
    """The automaton of ``nfa`` with one state at a time. For one thread at a time."""

    def __init__(self, nfa: Nfa) -> None:
        self._nfa = nfa
        self.alphabet = Alphabet(nfa.charsets)
        self._fuel = FUEL
        self.start: Places = self._close([START])
        self._numbers: dict[Places, int] = {}
        self._places: list[Places] = []
        self._num_places = 0
        self._table: States = self._empty_table()

    def begin(self, places: Places) -> int:
        """Begin an operation at ``places``; returns its state."""
        if self._num_places > _MAX_PLACES or len(self._places) * self.alphabet.num_classes > _MAX_CELLS:
            self._numbers, self._places, self._num_places, self._table = {}, [], 0, self._empty_table()
        self._fuel = FUEL
        return self._number(places)

    def places(self, state: int) -> Places:
        """What ``state`` stands for."""
        return self._places[state]

    def step(self, state: int, character_class: int) -> int:
        """The state behind a character of ``character_class``, or ``DEAD``.

        Raises:
            GrammarError: the operation takes too much work.
        """
        known = int(self._table[state, character_class])
        if known != _UNKNOWN:
            return known
        sets, edges = self.alphabet.members[character_class], self._nfa.edges
        places = _numbers(self._places[state])
        self._burn(len(places))
        targets = [edge[1] for place in places if (edge := edges[place]) and edge[0] in sets]
        following = self._number(self._close(targets)) if targets else DEAD
        self._table[state, character_class] = following
        return following

    def step_all(self, states: States, classes: States) -> States:
        """``step`` for each pair, [n] and [n] → [n]."""
        following: States = self._table[states, classes]
        unknown = np.flatnonzero(following == _UNKNOWN)
        if len(unknown):
            pairs = np.unique(states[unknown].astype(np.int64) * self.alphabet.num_classes + classes[unknown])
            for pair in pairs.tolist():
                self.step(*divmod(pair, self.alphabet.num_classes))
            following[unknown] = self._table[states[unknown], classes[unknown]]
        return following

    def read(self, state: int, node: int, byte: int) -> tuple[int, int]:
        """The state and the decoder's node behind ``byte``; the state is ``DEAD`` where it cannot follow."""
        entry = int(self.alphabet.decoder[node, byte])
        if entry >= DEAD:
            return (state, entry) if entry > 0 else (DEAD, 0)
        return self.step(state, class_of(entry)), 0

    def can_complete(self, state: int, node: int) -> bool:
        """Whether the unfinished character of ``node`` may turn out to be one that can follow."""
        return node == 0 or any(self.step(state, c) != DEAD for c in self.alphabet.below[node])

    def matches(self, text: bytes) -> bool:
        """Whether the whole of ``text`` matches."""
        state, node = self.begin(self.start), 0
        for byte in text:
            state, node = self.read(state, node, byte)
            if state == DEAD:
                return False
        return node == 0 and may_end(self._places[state])

    # --- below: how states come into being ------------------------------------------------------------

    def _close(self, targets: Iterable[int]) -> Places:
        """All that empty moves reach."""
        edges, empty = self._nfa.edges, self._nfa.empty
        stack, seen = list(targets), set(targets)
        while stack:
            for following in empty[stack.pop()]:
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        self._burn(len(seen))
        return array("I", sorted(place for place in seen if edges[place] or place == END)).tobytes()

    def _number(self, places: Places) -> int:
        state = self._numbers.get(places)
        if state is None:
            state = self._numbers[places] = len(self._places)
            self._places.append(places)
            self._num_places += len(places) // 4
            self._burn(self.alphabet.num_classes // 16)
            if state == len(self._table):
                more = np.full_like(self._table, _UNKNOWN)
                self._table = np.concatenate((self._table, more))
        return state

    def _empty_table(self) -> States:
        return np.full((16, self.alphabet.num_classes), _UNKNOWN, dtype=np.int32)

    def _burn(self, visits: int) -> None:
        self._fuel -= visits
        if self._fuel < 0:
            raise GrammarError(
                f"following the pattern takes more than {FUEL:,} visits of its states for one token: repeat less, or "
                "make the alternatives begin differently"
            )


def may_end(places: Places) -> bool:
    """Whether the text that leads to ``places`` is a whole match."""
    return END in _numbers(places)[: END + 1]


def _numbers(places: Places) -> memoryview[int]:
    return memoryview(places).cast("I")
