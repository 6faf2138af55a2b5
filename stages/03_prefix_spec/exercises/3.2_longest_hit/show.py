"""The learner's hits: requests block by block, what the cache holds of them, and what is reused."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from stage1.trace import palette

HELD: tuple[list[int | None], ...] = (
    [7, 2, 9, 11, None],
    [7, 2, None, 6, 1],
    [None, 3, 6, 1, 8],
    [4, 0, 5, None, None],
    [12, 10, 13, 14, 15],
)


def show(subject: Callable[[Iterable[bytes], Callable[[bytes], int | None]], list[int]]) -> Figure:
    """A row a request, a box a block: its id where the cache holds it, filled where the subject reuses it."""
    figure = palette.new_figure(8.0, 3.6)
    ax = figure.subplots()
    for row, held in enumerate(HELD):
        by_key = {bytes([place]): block for place, block in enumerate(held)}
        reused = set(subject(iter(by_key), by_key.get))
        for place, block in enumerate(held):
            used = block is not None and block in reused
            face = palette.PROMPT if used else "white" if block is None else palette.SINGLE
            style = "--" if block is None else "-"
            ax.add_patch(
                Rectangle((place, row - 0.35), 0.9, 0.7, facecolor=face, edgecolor=palette.PALE, linestyle=style)
            )
            ink = "white" if used else palette.INK
            text = "not there" if block is None else f"block {block}"
            ax.text(place + 0.45, row, text, ha="center", va="center", fontsize=palette.SMALL, color=ink)
    ax.set_xlim(-0.1, 5.1)
    ax.set_ylim(len(HELD) - 0.4, -0.6)
    ax.set_xticks([])
    ax.set_yticks(range(len(HELD)), [f"request {name}" for name in "abcde"])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    handles = [Patch(color=palette.PROMPT, label="reused"), Patch(color=palette.SINGLE, label="there, not reused")]
    figure.legend(handles=handles, fontsize=palette.SMALL, frameon=False, ncols=2, loc="outside lower left")
    palette.title(ax, "Your hits", "the blocks of five requests, first block on the left")
    return figure
