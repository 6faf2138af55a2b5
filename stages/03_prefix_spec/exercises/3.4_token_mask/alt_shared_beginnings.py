"""Beginnings that tokens share are read once: a table from each beginning to where it leads."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stage3.grammar.alphabet import DEAD
from stage3.grammar.fsm import Machine
from stage3.grammar.token_fsm import Place
from stage3.grammar.vocabulary import Vocabulary


def allowed_tokens(machine: Machine, vocabulary: Vocabulary, place: Place) -> npt.NDArray[np.bool_]:
    """[vocab] bool."""
    leads: dict[bytes, tuple[int, int]] = {b"": (machine.begin(place[0]), place[1])}

    def lead(text: bytes) -> tuple[int, int]:
        if text not in leads:
            state, node = lead(text[:-1])
            leads[text] = (DEAD, 0) if state == DEAD else machine.read(state, node, text[-1])
        return leads[text]

    def is_allowed(text: bytes) -> bool:
        state, node = lead(text)
        return len(text) > 0 and state != DEAD and machine.can_complete(state, node)

    return np.fromiter((is_allowed(text) for text in vocabulary.tokens), dtype=np.bool_)
