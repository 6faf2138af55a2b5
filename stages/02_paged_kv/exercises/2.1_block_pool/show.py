"""The learner's pool at work: the free list, and the owners of the other blocks, after each call."""

from __future__ import annotations

from itertools import islice
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from stage1.trace import palette

NUM_BLOCKS = 5
CALLS = [("take", 3), ("give_back", 1), ("share", 0), ("share", 4), ("give_back", 0), ("take", 1), ("give_back", 2),
         ("give_back", 0)]  # fmt: skip
GAP = NUM_BLOCKS + 1.2  # where the owned blocks begin


def show(subject: Any) -> Figure:
    """A line a call: on the left the free list from head to tail, on the right the blocks with their owners."""
    pool = subject(NUM_BLOCKS)
    figure = palette.new_figure(9.0, 1.3 + 0.36 * (len(CALLS) + 1))
    ax = figure.subplots()
    labels = ["at first"]
    _row(ax, 0, pool)
    for row, (name, argument) in enumerate(CALLS, 1):
        answer = getattr(pool, name)(argument)
        labels.append(f"{name}({argument})" + (f" → {answer}" if answer is not None else ""))
        _row(ax, row, pool)
    ax.set_xlim(-0.6, GAP + NUM_BLOCKS)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_xticks([])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    palette.title(ax, "Your pool, call by call", "left: the free list, head first · right: block × owners")
    return figure


def _row(ax: Axes, row: int, pool: Any) -> None:
    free = list(islice(pool.free_blocks(), NUM_BLOCKS))
    for x, block in enumerate(free):
        _box(ax, x, row, str(block), "white")
        if x + 1 < len(free):
            ax.annotate("", (x + 0.7, row), (x + 0.3, row), arrowprops={"arrowstyle": "->", "color": palette.PALE})
    owned = [block for block in range(NUM_BLOCKS) if pool.ref_count(block)]
    for x, block in enumerate(owned):
        count = pool.ref_count(block)
        _box(ax, GAP + x, row, f"{block} × {count}", palette.MARK if count > 1 else palette.SINGLE)


def _box(ax: Axes, x: float, y: float, text: str, colour: str) -> None:
    ax.add_patch(FancyBboxPatch((x - 0.26, y - 0.26), 0.52, 0.52, boxstyle="round,pad=0.04", facecolor=colour,
                                edgecolor=palette.WAITING))  # fmt: skip
    ax.text(x, y, text, ha="center", va="center", fontsize=palette.NORMAL, color=palette.INK)
