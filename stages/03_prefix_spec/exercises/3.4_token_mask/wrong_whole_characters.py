"""A token that ends inside a character is refused.

Vocabularies of bytes cut where it pays: 🦙 is four bytes, and most tokenizers write it in two or three tokens. If half
a character is never allowed, no output can have one that is not a token of its own. Ask `can_complete(state, node)`,
which is true for a whole character as well.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    """Whole characters only."""
    allowed = np.zeros(vocabulary.size, dtype=np.bool_)
    for token, text in enumerate(vocabulary.tokens):
        state, node = machine.begin(place[0]), place[1]
        for byte in text:
            state, node = machine.read(state, node, byte)
            if state == DEAD:
                break
        allowed[token] = bool(text) and state != DEAD and node == 0
    return allowed
