"""Only the first byte of a token is tried.

A token is drawn as a whole: with `12` come both its bytes, and `1a` brings an `a` that nothing allows. Read every
byte, each from where the one before has led, and give up at the first that is `DEAD`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    """What begins right."""
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    for token, text in enumerate(vocabulary.tokens):
        if text:
            state, node = machine.read(machine.begin(place[0]), place[1], text[0])
            allowed[token] = state != DEAD and machine.can_complete(state, node)
    return allowed
