"""The learner's masks with their endings, along one output: a row a place, a column a token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sixfold.figures.grammar import draw_masks
from stage3.grammar.masks import unpack
from stage3.grammar.token_fsm import choice_grammar
from stage3.grammar.vocabulary import Vocabulary

TOKENS = [b"n", b"o", b"no", b"p", b"e", b"pe", b"nope", b""]
END = len(TOKENS) - 1
OUTPUT = [2, 3, 4, END]


def show(subject: Callable[..., Any]) -> Figure:
    """The mask before each token of ``OUTPUT``, and the one behind the end."""
    vocabulary = Vocabulary(TOKENS)
    matcher = subject(choice_grammar(["no", "nope"], vocabulary).start(), frozenset({END}))
    text, rows, chosen = "", {}, {}
    for token in [*OUTPUT, None]:
        out = np.zeros(vocabulary.num_words, dtype=np.uint32)
        matcher.allowed_mask(out)
        rows[text] = unpack(out, len(TOKENS))
        if token is not None:
            chosen[text] = token
            matcher.accept([token])
            text += TOKENS[token].decode() or " END"
    return draw_masks(TOKENS, rows, "Your masks for no|nope; ∅ is end-of-text", chosen)
