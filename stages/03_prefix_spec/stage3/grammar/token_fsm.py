"""The automaton of a pattern over tokens: which of them keep the match possible, and what each leads to.

Owns the walk over the vocabulary. Does not know patterns' syntax, or what ends an output.

A place in the output is a state of the ``Machine`` and a node of its decoder, because a token may end inside a
character. A token is allowed if its bytes can be read from there and a match can still follow. The vocabulary's tree is
walked level by level, all tokens at once, and a mask is kept for the next time that an output comes to the same place:
2 ms a mask for 49,152 tokens, on one core of a server's CPU.

    choice no|nope        place ""    n, no, nop, nope                place "no"    p, pe, and the end

vLLM: ``v1/structured_output/backend_outlines.py``, after B. Willard and R. Louf, "Efficient guided generation for large
language models", 2023, https://arxiv.org/abs/2307.09702.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD, class_of
from stage3.grammar.errors import GrammarError
from stage3.grammar.fsm import Machine, Places, States, may_end
from stage3.grammar.masks import Words, pack
from stage3.grammar.nfa import Nfa
from stage3.grammar.regex_parse import parse
from stage3.grammar.vocabulary import Vocabulary

MAX_ROLLBACK = 256  # tokens: far more than are ever speculated

Place = tuple[Places, int]  # of the machine, and the decoder's node


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    """The tokens that keep a match possible at ``place``, [vocab]; tokens without a text are not.

    Raises:
        GrammarError: finding out takes too much work.
    """
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    states = np.array([machine.begin(place[0])], dtype=np.int32)
    nodes = np.array([place[1]], dtype=np.int32)  # states[i] and nodes[i]: where beginning i of the level leads
    for level in vocabulary.levels:
        before = states[level.parent]  # [nodes of the level]
        alive = np.flatnonzero(before != DEAD)
        if not len(alive):
            break
        states = np.full(len(before), DEAD, dtype=np.int32)
        nodes_before, nodes = nodes[level.parent[alive]], np.zeros(len(before), dtype=np.int32)
        states[alive], nodes[alive] = _read_all(machine, before[alive], nodes_before, level.byte[alive])
        allowed[level.tokens] = states[level.ends] != DEAD
    return allowed


MakeMask = Callable[[Machine, Vocabulary, Place], Words]


def mask_maker(
    allowed: Callable[[Machine, Vocabulary, Place], npt.NDArray[np.bool_]] = allowed_tokens,
    pack: Callable[[npt.NDArray[np.bool_]], Words] = pack,
) -> MakeMask:
    """What makes the mask of a place out of these two parts."""
    return lambda machine, vocabulary, place: pack(allowed(machine, vocabulary, place))


def regex_grammar(pattern: str, vocabulary: Vocabulary, make_mask: MakeMask = mask_maker()) -> TokenFsm:
    """The grammar of a regular expression, which the whole output matches.

    Raises:
        GrammarError: see ``regex_parse`` and ``fsm``; or no token can begin a match.
    """
    return TokenFsm(Machine(Nfa.of_pattern(parse(pattern))), vocabulary, make_mask)


def choice_grammar(choices: Sequence[str], vocabulary: Vocabulary, make_mask: MakeMask = mask_maker()) -> TokenFsm:
    """The grammar of an output that is one of ``choices``.

    Raises:
        GrammarError: no token can begin one of them, or finding out takes too much work.
    """
    return TokenFsm(Machine(Nfa.of_texts(choices)), vocabulary, make_mask)


class TokenFsm:
    """``Grammar`` of an automaton. Its walks share their masks; for one thread at a time.

    Raises:
        GrammarError: no token can begin a match, or finding out takes too much work.
    """

    def __init__(self, machine: Machine, vocabulary: Vocabulary, make_mask: MakeMask = mask_maker()) -> None:
        self._machine = machine
        self._make_mask = make_mask
        self._vocabulary = vocabulary
        self._token = object()  # tells this grammar's masks from those of others, also of ones that are gone
        first = self.mask((machine.start, 0))
        if not first.any() and not may_end(machine.start):
            raise GrammarError("no token of this model can begin a match: allow other characters")

    def start(self) -> FsmWalk:
        """See ``Grammar``."""
        return FsmWalk(self, (self._machine.start, 0))

    def mask(self, place: Place) -> Words:
        """What may follow at ``place``; not to be written to."""
        masks = self._vocabulary.masks
        return masks.get((self._token, *place), lambda: self._make_mask(self._machine, self._vocabulary, place))

    def follow(self, place: Place, token: int) -> Place | None:
        """The place behind ``token``, or ``None`` if it cannot follow."""
        text = self._vocabulary.tokens[token] if 0 <= token < self._vocabulary.size else b""
        if not text:
            return None
        state, node = self._machine.begin(place[0]), place[1]
        for byte in text:
            state, node = self._machine.read(state, node, byte)
            if state == DEAD:
                return None
        return (self._machine.places(state), node) if self._machine.can_complete(state, node) else None


class FsmWalk:
    """``Walk`` through a ``TokenFsm``, with the places that it came through."""

    def __init__(self, fsm: TokenFsm, start: Place) -> None:
        self._fsm = fsm
        self._places = deque([start], maxlen=MAX_ROLLBACK + 1)

    @property
    def may_end(self) -> bool:
        """See ``Walk``."""
        places, node = self._places[-1]
        return node == 0 and may_end(places)

    def mask(self) -> Words:
        """See ``Walk``."""
        return self._fsm.mask(self._places[-1])

    def advance(self, token: int) -> bool:
        """See ``Walk``."""
        following = self._fsm.follow(self._places[-1], token)
        if following is None:
            return False
        self._places.append(following)
        return True

    def rollback(self, count: int) -> None:
        """See ``Walk``."""
        if not 0 <= count < len(self._places):
            raise ValueError(f"{count} tokens are to be undone; the last {len(self._places) - 1} are remembered")
        for _ in range(count):
            self._places.pop()


def _read_all(machine: Machine, states: States, nodes: States, bytes_: States) -> tuple[States, States]:
    """``Machine.read`` for each triple; a character that can no longer be completed is dead at once."""
    entries = machine.alphabet.decoder[nodes, bytes_]
    following = np.full_like(states, DEAD)
    whole, open_ = np.flatnonzero(entries < DEAD), np.flatnonzero(entries > 0)
    following[whole] = machine.step_all(states[whole], class_of(entries[whole]))
    pairs = states[open_].astype(np.int64) << 32 | entries[open_]
    for pair in np.unique(pairs).tolist():
        state, node = pair >> 32, pair & 0xFFFFFFFF
        if machine.can_complete(state, node):
            following[open_[pairs == pair]] = state
    return following, np.maximum(entries, 0)
