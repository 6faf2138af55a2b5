"""The learner's pool at work: which content lies in which block, and who is free, after each call."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from stage1.trace import palette
from stage2.block_pool import BlockPool

NUM_BLOCKS = 6
CALLS: tuple[tuple[Any, ...], ...] = (
    ("take", 3), ("publish", 0, "a"), ("publish", 1, "b"), ("publish", 2, "c"), ("give_back", 2), ("give_back", 1),
    ("give_back", 0), ("share", 1), ("take", 4), ("give_back", 1), ("take", 1),
)  # fmt: skip
SEEN = "abc"


def show(subject: Any) -> Figure:
    """A line a call: on the left the blocks with what they hold, white where free; on the right what can be found."""
    inner = BlockPool(NUM_BLOCKS)
    pool = subject(inner)
    figure = palette.new_figure(9.0, 1.3 + 0.36 * (len(CALLS) + 1))
    ax = figure.subplots()
    labels = ["at first"]
    _row(ax, 0, pool, inner)
    for row, (name, *arguments) in enumerate(CALLS, 1):
        answer = getattr(pool, name)(*(a.encode() if isinstance(a, str) else a for a in arguments))
        shown = ", ".join(map(str, arguments))
        labels.append(f"{name}({shown})" + (f" → {answer}" if answer is not None else ""))
        _row(ax, row, pool, inner)
    ax.set_xlim(-0.6, NUM_BLOCKS + 3.6)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_yticks(range(len(labels)), labels)
    ax.set_xticks(range(NUM_BLOCKS), [f"block {block}" for block in range(NUM_BLOCKS)])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    palette.title(
        ax, "Your remembering pool, call by call", "white: free · filled: has an owner · letter: what it holds"
    )
    return figure


def _row(ax: Axes, row: int, pool: Any, inner: BlockPool) -> None:
    free = set(inner.free_blocks())
    for block in range(NUM_BLOCKS):
        colour = "white" if block in free else palette.SINGLE
        box = FancyBboxPatch((block - 0.3, row - 0.26), 0.6, 0.52, boxstyle="round,pad=0.04", facecolor=colour,
                             edgecolor=palette.WAITING)  # fmt: skip
        ax.add_patch(box)
        key = pool.key_of(block)
        text = key.decode() if key is not None else ""
        ax.text(block, row, text, ha="center", va="center", fontsize=palette.NORMAL, color=palette.INK)
    found = [(key, pool.find(key.encode())) for key in SEEN]
    words = "   ".join(f"{key}: block {block}" for key, block in found if block is not None)
    ax.text(NUM_BLOCKS - 0.2, row, words or "nothing to find", va="center", fontsize=palette.SMALL, color=palette.PALE)
