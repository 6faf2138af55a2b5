"""A token is allowed only where the text is a whole match behind it.

That forbids every first half: behind nothing, `ye` is no match of `yes|no`, and yet the only way to `yes` may lead
through it. The question is whether a match can *still follow*, and the automaton answers it by itself: it has no
state from which none can be reached, so a state that is not `DEAD` is enough.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine, may_end
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    """What ends a match."""
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    for token, text in enumerate(vocabulary.tokens):
        state, node = machine.begin(place[0]), place[1]
        for byte in text:
            state, node = machine.read(state, node, byte)
            if state == DEAD:
                break
        allowed[token] = bool(text) and state != DEAD and node == 0 and may_end(machine.places(state))
    return allowed
