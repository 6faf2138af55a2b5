"""The learner's slots in a small cache: every token of one step at the place that the mapping gives it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stage1.trace import palette

BLOCK_SIZE = 4
NUM_BLOCKS = 10
TABLE = [[7, 2, 9], [4, 0, 0], [1, 5, 0]]
PARTS = [(0, range(10)), (1, range(3)), (2, range(6, 7))]  # two prompts, and one decode at position 6


def show(subject: Callable[..., torch.Tensor]) -> Figure:
    """A row a block, a cell a slot; the number in it is the position of the token that is written there."""
    request = [row for row, positions in PARTS for _ in positions]
    positions = [position for _, positions in PARTS for position in positions]
    slots = subject(torch.tensor(TABLE), torch.tensor(request), torch.tensor(positions), BLOCK_SIZE).tolist()
    figure = palette.new_figure(7.0, 4.2)
    ax = figure.subplots()
    for slot in set(range(NUM_BLOCKS * BLOCK_SIZE)) - set(slots):
        _cell(ax, slot, "white", f"slot {slot}", palette.WAITING)
    for row, position, slot in zip(request, positions, slots, strict=True):
        colour = palette.owner_colour(row)
        _cell(ax, slot, colour, f"{'abc'[row]} {position}", palette.ink_on(colour))
    ax.set_xlim(-0.1, BLOCK_SIZE + 0.1)
    ax.set_ylim(NUM_BLOCKS + 0.1, -0.1)
    ax.set_xticks([])
    ax.set_yticks([block + 0.5 for block in range(NUM_BLOCKS)], [f"block {block}" for block in range(NUM_BLOCKS)])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    tables = " · ".join(f"{name}: {blocks}" for name, blocks in zip("abc", ([7, 2, 9], [4], [1, 5]), strict=True))
    palette.title(ax, "Where your mapping writes each token", f"request and position in each cell · blocks of {tables}")
    return figure


def _cell(ax: Axes, slot: int, colour: str | palette.Colour, text: str, ink: str) -> None:
    block, offset = divmod(slot, BLOCK_SIZE)
    ax.add_patch(Rectangle((offset + 0.03, block + 0.06), 0.94, 0.88, facecolor=colour, edgecolor=palette.WAITING))
    ax.text(offset + 0.5, block + 0.5, text, ha="center", va="center", fontsize=palette.SMALL, color=ink)
