"""From bytes to classes of characters: what an automaton over characters needs to read tokens, which are bytes.

Owns two tables of a pattern. Does not know the pattern's structure, nor tokens.

*Classes.* The sets of a pattern cut Unicode into pieces that no set tells apart; ``[a-z]|[x-z0-9]`` knows a-w, x-z, 0-9
and the rest, which nothing matches. An automaton needs one transition a class, not one a character.

*The decoder.* A token may end inside a character: 🦙 is ``F0 9F | A6 | 99``. The decoder is an automaton over bytes.
Its nodes are unfinished characters (node 0: none), shared where the rest of the character decides alike:

    decoder[node, byte]     n >= 1   the character goes on in node n
                            -1       no character of the pattern begins like this
                            -2 - c   the character is complete, and of class c

vLLM: none of its own; ``v1/structured_output/backend_outlines.py`` leaves this to a library.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stage3.grammar.charsets import Ranges

Entry = TypeVar("Entry", int, npt.NDArray[np.int32])

DEAD = -1
_FIRST_CLASS = -2
_SHIFT = 6  # bits that a continuation byte holds
# Of each length of UTF-8: leading bytes, the bits that mark them, continuation bytes, and the smallest code point.
_FORMS = (
    (range(0x80), 0x00, 0, 0),
    (range(0xC2, 0xE0), 0xC0, 1, 0x80),
    (range(0xE0, 0xF0), 0xE0, 2, 0x800),
    (range(0xF0, 0xF5), 0xF0, 3, 0x10000),
)
_CONTINUATIONS = range(0x80, 0xC0)


class Alphabet:
    """The classes that ``charsets`` make, and the decoder to them."""

    def __init__(self, charsets: Sequence[Ranges]) -> None:
        self.members: list[frozenset[int]] = []  # of each class: the sets that it is part of
        self._starts, self._classes = self._cut(charsets)  # class of the code points from starts[i] to starts[i + 1]
        self._rows: list[list[int]] = []
        self._nodes: dict[tuple[int, ...], int] = {}  # equal rows are one node
        self._uniform: dict[tuple[int, int], int] = {}
        self._make_root()
        self.decoder: npt.NDArray[np.int32] = np.array(self._rows, dtype=np.int32)  # [nodes, 256]
        self.below = self._reach()  # of each node: the classes that its character may turn out to be

    @property
    def num_classes(self) -> int:
        """Classes that some set has."""
        return len(self.members)

    def _cut(self, charsets: Sequence[Ranges]) -> tuple[list[int], list[int]]:
        toggles: dict[int, int] = {0: 0}
        for i, ranges in enumerate(charsets):
            for low, high in ranges:
                toggles[low] = toggles.get(low, 0) ^ (1 << i)
                toggles[high + 1] = toggles.get(high + 1, 0) ^ (1 << i)
        starts: list[int] = []
        classes: list[int] = []
        known: dict[int, int] = {0: DEAD}
        signature = 0
        for code in sorted(toggles):
            signature ^= toggles[code]
            if signature not in known:
                known[signature] = len(self.members)
                self.members.append(frozenset(_bits(signature)))
            if not classes or classes[-1] != known[signature]:
                starts.append(code)
                classes.append(known[signature])
        return starts, classes

    def _make_root(self) -> None:
        root = [DEAD] * 256
        self._rows.append(root)
        for leads, mark, more, smallest in _FORMS:
            for lead in leads:
                root[lead] = self._entry((lead - mark) << (_SHIFT * more), more, smallest)

    def _entry(self, low: int, more: int, smallest: int) -> int:
        """The decoder's entry for the code points from ``low`` on that ``more`` further bytes tell apart."""
        high = low + (1 << (_SHIFT * more)) - 1
        at = bisect_right(self._starts, low) - 1
        is_uniform = at + 1 == len(self._starts) or high < self._starts[at + 1]
        if high < smallest or (is_uniform and self._classes[at] == DEAD):
            return DEAD
        if more == 0:
            return _FIRST_CLASS - self._classes[at]
        if not is_uniform or low < smallest:
            step = 1 << (_SHIFT * (more - 1))
            return self._node([self._entry(low + i * step, more - 1, smallest) for i in range(64)])
        key = (self._classes[at], more)
        if key not in self._uniform:
            self._uniform[key] = self._node([self._entry(low, more - 1, 0)] * 64)
        return self._uniform[key]

    def _node(self, entries: Sequence[int]) -> int:
        """The node whose continuation bytes lead to ``entries`` [64]."""
        key = tuple(entries)
        if all(entry == DEAD for entry in key):
            return DEAD
        if key not in self._nodes:
            row = [DEAD] * 256
            row[_CONTINUATIONS.start : _CONTINUATIONS.stop] = key
            self._nodes[key] = len(self._rows)
            self._rows.append(row)
        return self._nodes[key]

    def _reach(self) -> list[frozenset[int]]:
        below: list[frozenset[int]] = [frozenset()] * len(self._rows)
        for node in range(1, len(self._rows)):  # a node is made after those that it leads to
            entries = set(self._rows[node])
            done = {_FIRST_CLASS - entry for entry in entries if entry <= _FIRST_CLASS}
            below[node] = frozenset(done.union(*(below[entry] for entry in entries if entry > 0)))
        return below


def class_of(entry: Entry) -> Entry:
    """The class in a decoder's entry of -2 or less, or in an array of them."""
    return _FIRST_CLASS - entry


def _bits(signature: int) -> list[int]:
    found = []
    while signature:
        low = signature & -signature
        found.append(low.bit_length() - 1)
        signature ^= low
    return found
