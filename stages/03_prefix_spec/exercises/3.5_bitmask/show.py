"""The learner's words for a small vocabulary, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stage1.trace import palette

VOCAB_SIZE = 75
ALLOWED = [0, 2, 3, 7, 31, 32, 40, 41, 42, 63, 64, 74]


def show(subject: Callable[..., Any]) -> Figure:
    """A row a word, a cell a bit: token numbers where it is 1, and a cross where it is nobody's."""
    allowed = np.zeros(VOCAB_SIZE, dtype=np.bool_)
    allowed[ALLOWED] = True
    words = subject(allowed).tolist()
    figure = palette.new_figure(10.5, 1.0 + 0.4 * len(words))
    ax = figure.subplots()
    for y, word in enumerate(words):
        for bit in range(32):
            token = 32 * y + bit
            colour = palette.PROMPT if word >> bit & 1 else palette.GRID if token < VOCAB_SIZE else "white"
            ax.add_patch(Rectangle((bit + 0.05, y + 0.08), 0.9, 0.84, facecolor=colour, edgecolor=palette.GRID))
            text = str(token) if token < VOCAB_SIZE else "×"
            ax.text(bit + 0.5, y + 0.5, text, ha="center", va="center", fontsize=palette.SMALL - 1,
                    color=palette.ink_on(colour) if word >> bit & 1 else palette.PALE)  # fmt: skip
    ax.set_xlim(0, 32)
    ax.set_ylim(len(words), 0)
    ax.set_xticks([bit + 0.5 for bit in (0, 8, 16, 24, 31)], ["bit 0", "8", "16", "24", "31"])
    ax.set_yticks([y + 0.5 for y in range(len(words))], [f"word {y}: {word:#010x}" for y, word in enumerate(words)])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(length=0)
    size = f"{VOCAB_SIZE} tokens in {4 * len(words)} bytes"
    palette.title(ax, "Your words", f"{size} · blue: a bit that is 1 · ×: a bit of no token")
    return figure
