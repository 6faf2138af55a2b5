"""The node has to be back at none."""

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def leads_on(machine: Machine, state: int, node: int, text: bytes) -> bool:
    if state == DEAD:
        return False
    if not text:
        return node == 0
    return leads_on(machine, *machine.read(state, node, text[0]), text[1:])


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    start = machine.begin(place[0])
    texts = vocabulary.tokens
    return np.array([bool(text) and leads_on(machine, start, place[1], text) for text in texts])
