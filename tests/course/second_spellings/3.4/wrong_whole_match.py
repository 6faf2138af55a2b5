"""Asks the machine whether the text matches, from wherever it is."""

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine, may_end
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def ends(machine: Machine, place: Place, text: bytes) -> bool:
    state, node = machine.begin(place[0]), place[1]
    for byte in text:
        if state == DEAD:
            return False
        state, node = machine.read(state, node, byte)
    if state == DEAD or node:
        return False
    return may_end(machine.places(state))


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    return np.array([text != b"" and ends(machine, place, text) for text in vocabulary.tokens], dtype=bool)
