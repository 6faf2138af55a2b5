"""The learner's manager at work: who holds which block after each call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stage1.trace import palette

CALLS = [("a", 3), ("b", 5), ("a", 4), ("c", 2), ("d", 2), ("b", None), ("d", 2), ("a", None), ("c", None), ("d", None)]
NUM_BLOCKS = 3


def show(subject: Any) -> Figure:
    """A column a call, a row a block, a colour a request; ``-`` in the label frees."""
    manager = subject(NUM_BLOCKS, 9)
    held: dict[str, list[int]] = {}
    figure = palette.new_figure(9.0, 2.6)
    ax = figure.subplots()
    labels = []
    for column, (req_id, upto) in enumerate(CALLS):
        request = SimpleNamespace(req_id=req_id)
        if upto is None:
            manager.free(request)
            held.pop(req_id, None)
            labels.append(f"free {req_id}")
        else:
            blocks = manager.allocate_slots(request, upto)
            held.setdefault(req_id, []).extend(blocks or [])
            labels.append(f"{req_id} to {upto}\n→ {blocks}")
        for owner, blocks in held.items():
            for block in blocks:
                colour = palette.owner_colour("abcd".index(owner))
                ax.add_patch(Rectangle((column - 0.46, block - 0.4), 0.92, 0.8, color=colour))
                ax.text(column, block, owner, ha="center", va="center", color=palette.ink_on(colour))
    ax.set_xlim(-0.6, len(CALLS) - 0.4)
    ax.set_ylim(NUM_BLOCKS - 0.4, -0.6)
    ax.set_xticks(range(len(CALLS)), labels)
    ax.set_yticks(range(NUM_BLOCKS), [f"block {i}" for i in range(NUM_BLOCKS)])
    palette.bare(ax)
    palette.title(
        ax, "Blocks after each call of your manager", "d waits while all three are taken, and gets one when b is freed"
    )
    return figure
