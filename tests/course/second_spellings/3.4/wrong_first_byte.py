"""A set of first bytes."""

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    start = machine.begin(place[0])
    firsts = set()
    for byte in range(256):
        state, node = machine.read(start, place[1], byte)
        if state != DEAD and machine.can_complete(state, node):
            firsts.add(byte)
    return np.array([text[:1] != b"" and text[0] in firsts for text in vocabulary.tokens])
