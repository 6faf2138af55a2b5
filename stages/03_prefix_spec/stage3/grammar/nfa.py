"""From a pattern's tree to an automaton that may be in several states at once (Thompson's construction).

Owns the construction and its bound. Does not know bytes, tokens or how the automaton is followed. A state has at most
one edge that reads a character, and any number of empty moves:

    a(b|c)*      0 ─a▸ 2 ─▸ 3 ─▸ 4 ─▸ 6 ─b▸ 7 ─▸ 5 ─▸ 3        and 3 ─▸ 1, the end
                                 4 ─▸ 8 ─c▸ 9 ─▸ 5

K. Thompson, "Regular expression search algorithm", 1968. vLLM: none of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from stage3.grammar.charsets import Ranges, single
from stage3.grammar.errors import GrammarError
from stage3.grammar.regex_parse import Chars, Choice, Concat, Node, Repeat

START, END = 0, 1
MAX_STATES = 20_000


class Nfa:
    """States 0 … ``len(edges) - 1``; the text is matched when ``END`` is reached at its end."""

    def __init__(self) -> None:
        self.charsets: list[Ranges] = []  # the pattern's distinct sets
        self.edges: list[tuple[int, int] | None] = [None, None]  # (index of the set, next state) of each state
        self.empty: list[list[int]] = [[], []]  # empty moves of each state
        self._ids: dict[Ranges, int] = {}

    @classmethod
    def of_pattern(cls, node: Node) -> Nfa:
        """The automaton of a pattern's tree.

        Raises:
            GrammarError: it needs too many states. That is computed first, so a hostile pattern costs nothing.
        """
        size = _size(node)
        if size > MAX_STATES:
            count = f"{size:,}" if size < 10**12 else "a number of 13 digits or more"
            raise GrammarError(
                f"the pattern needs {count} states; the limit is {MAX_STATES:,}: repeat less, above all inside of "
                "other repetitions"
            )
        nfa = cls()
        nfa._move(nfa._add(node, START), END)
        return nfa

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Nfa:
        """The automaton of alternatives that are plain texts: a tree, in which a text leads to one state."""
        nfa = cls()
        following: dict[tuple[int, str], int] = {}
        for text in texts:
            state = START
            for character in text:
                key = (state, character)
                if key not in following:
                    branch = nfa._state()
                    nfa._move(state, branch)
                    following[key] = nfa._read(single(character), branch)
                state = following[key]
            nfa._move(state, END)
        return nfa

    def _add(self, node: Node, start: int) -> int:
        """Build ``node`` behind ``start``, which has no edge yet; returns the state behind it."""
        if isinstance(node, Chars):
            return self._read(node.ranges, start)
        if isinstance(node, Concat):
            for part in node.parts:
                start = self._add(part, start)
            return start
        if isinstance(node, Choice):
            end = self._state()
            for part in node.parts:
                branch = self._state()
                self._move(start, branch)
                self._move(self._add(part, branch), end)
            return end
        return self._repeat(node, start)

    def _read(self, ranges: Ranges, start: int) -> int:
        end = self._state()
        charset = self._ids.setdefault(ranges, len(self._ids))
        if charset == len(self.charsets):
            self.charsets.append(ranges)
        self.edges[start] = (charset, end)
        return end

    def _repeat(self, node: Repeat, start: int) -> int:
        for _ in range(node.low):
            start = self._add(node.part, start)
        if node.high is None:
            hub = self._state()
            self._move(start, hub)
            inside = self._state()
            self._move(hub, inside)
            self._move(self._add(node.part, inside), hub)
            return hub
        end = self._state()
        for _ in range(node.high - node.low):
            self._move(start, end)
            start = self._add(node.part, start)
        self._move(start, end)
        return end

    def _state(self) -> int:
        self.edges.append(None)
        self.empty.append([])
        return len(self.edges) - 1

    def _move(self, start: int, end: int) -> None:
        if start != end:
            self.empty[start].append(end)


def _size(node: Node) -> int:
    """At least the number of states of ``node``, and of the steps that building them takes."""
    if isinstance(node, Chars):
        return 1
    if isinstance(node, Concat):
        return 1 + sum(map(_size, node.parts))
    if isinstance(node, Choice):
        return 1 + sum(1 + _size(part) for part in node.parts)
    copies = node.low + 1 if node.high is None else node.high
    return 2 + copies * _size(node.part)
