"""The walk begins at the start of the pattern, wherever the output is.

That is the mask of the first token, and it would allow `no` again behind `no`. What may follow depends on all that
came before, and `place` is what the automaton remembers of it: `machine.begin(place[0])`, and the unfinished
character `place[1]`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    """The first mask, always."""
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    for token, text in enumerate(vocabulary.tokens):
        state, node = machine.begin(machine.start), 0
        for byte in text:
            state, node = machine.read(state, node, byte)
            if state == DEAD:
                break
        allowed[token] = bool(text) and state != DEAD and machine.can_complete(state, node)
    return allowed
