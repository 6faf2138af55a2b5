"""Ignores where the output is."""

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def is_allowed(machine: Machine, text: bytes) -> bool:
    state, node = machine.begin(machine.start), 0
    for byte in text:
        state, node = machine.read(state, node, byte)
        if state == DEAD or not machine.can_complete(state, node):
            return False
    return True


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    return np.array([text != b"" and is_allowed(machine, text) for text in vocabulary.tokens])
