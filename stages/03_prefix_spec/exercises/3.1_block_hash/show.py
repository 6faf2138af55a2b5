"""The learner's names for the blocks of four requests: equal names in one colour, drawn as a tree from the left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from stage1.trace import palette

START = bytes(32)
ROWS = (
    ("a", ["You are", "a bot.", "Hi", "there"]),
    ("b", ["You are", "a bot.", "Why", "so?"]),
    ("c", ["I am", "a bot.", "Hi", "there"]),
    ("d", ["You are", "a bot.", "Hi", "there"]),
)
WIDTH = 1.0


def show(subject: Callable[[Any, list[int]], Any]) -> Figure:
    """A row a request, a box a block: its text, and the first digits of its name."""
    figure = palette.new_figure(8.5, 3.3)
    ax = figure.subplots()
    colours: dict[Any, palette.Colour] = {}
    for row, (label, texts) in enumerate(ROWS):
        name: Any = START
        ax.text(-0.1, row, f"request {label}", ha="right", va="center", fontsize=palette.NORMAL, color=palette.INK)
        for place, text in enumerate(texts):
            name = subject(name, list(text.encode()))
            colour = colours.setdefault(name, palette.owner_colour(len(colours)))
            box = FancyBboxPatch((place * 1.2, row - 0.3), WIDTH, 0.6, boxstyle="round,pad=0.03", facecolor=colour,
                                 edgecolor="none")  # fmt: skip
            ax.add_patch(box)
            digits = name.hex()[:6] if isinstance(name, bytes) else str(name)[:6]
            ax.text(place * 1.2 + WIDTH / 2, row, f"{text}\n{digits}…", ha="center", va="center",
                    fontsize=palette.SMALL, color=palette.ink_on(colour))  # fmt: skip
    ax.set_xlim(-0.8, 4 * 1.2)
    ax.set_ylim(len(ROWS) - 0.4, -0.6)
    ax.set_xticks([])
    ax.set_yticks([])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    detail = f"{len(colours)} different names for 16 blocks · one colour = one name = shared"
    palette.title(ax, "Your names: what would be shared", detail)
    return figure
