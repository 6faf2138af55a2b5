"""True until something fails."""

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    allowed = np.ones(vocabulary.size, dtype=np.bool_)
    start = machine.begin(place[0])
    for token, text in enumerate(vocabulary.tokens):
        state, node = start, place[1]
        for byte in text:
            state, node = machine.read(state, node, byte)
            if state == DEAD or not machine.can_complete(state, node):
                allowed[token] = False
                break
    return allowed
