"""The learner's masks along one output: a row a place, a column a token, framed what was drawn there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from sixfold.figures.grammar import draw_masks
from stage3.grammar.fsm import Machine
from stage3.grammar.nfa import Nfa
from stage3.grammar.regex_parse import parse
from stage3.grammar.vocabulary import Vocabulary

PATTERN = r"-?[0-9]+(\.[0-9]{2})?€"
EURO = "€".encode()
TOKENS = [b"-", b"-1", b"1", b"12", b"123", b".", b".5", b".50", b"1.", b"5", b"50", EURO[:1], EURO[1:], EURO,
          b"0" + EURO, b"a", b"1a", b"", b"--"]  # fmt: skip
OUTPUT = [b"-1", b"12", b".5", b"0" + EURO]  # drawn one after the other


def show(subject: Callable[..., Any]) -> Figure:
    """The mask before each token of ``OUTPUT``, and the one behind the last."""
    machine, vocabulary = Machine(Nfa.of_pattern(parse(PATTERN))), Vocabulary(TOKENS)
    place, text, rows, chosen = (machine.start, 0), b"", {}, {}
    for token in [*OUTPUT, b""]:
        rows[text.decode()] = subject(machine, vocabulary, place)
        if not token:
            break
        chosen[text.decode()] = TOKENS.index(token)
        state, node = machine.begin(place[0]), place[1]
        for byte in token:
            state, node = machine.read(state, node, byte)
        place, text = (machine.places(state), node), text + token
    return draw_masks(TOKENS, rows, f"Your masks for {PATTERN}", chosen)
