"""Tokens without a text are allowed everywhere.

A loop over no bytes finds nothing wrong, so end-of-text, padding and control tokens slip through. Each of them keeps
the output where it is: a model that likes one can draw it for ever. When an output may end is decided elsewhere; here
a token whose text is empty is never allowed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    """Whatever does not fail."""
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    for token, text in enumerate(vocabulary.tokens):
        state, node = machine.begin(place[0]), place[1]
        for byte in text:
            state, node = machine.read(state, node, byte)
            if state == DEAD:
                break
        allowed[token] = state != DEAD and machine.can_complete(state, node)
    return allowed
