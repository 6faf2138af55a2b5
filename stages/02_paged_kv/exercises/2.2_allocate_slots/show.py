"""The learner's manager at work: three requests grow, token by token, into blocks of a small cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stage1.trace import palette
from stage2.block_pool import BlockPool

BLOCK_SIZE = 4
NUM_BLOCKS = 6
CALLS = [("a", 6), ("b", 3), ("a", 9), ("c", 5), ("b", 5), ("a", None), ("c", 9), ("b", 6)]


def show(subject: Any) -> Figure:
    """A column a call, a row a block: filled as far as the block holds tokens, pale where it is room to come."""
    manager = subject(BlockPool(NUM_BLOCKS), BLOCK_SIZE)
    rows: dict[str, list[int]] = {}
    lengths: dict[str, int] = {}
    figure = palette.new_figure(9.0, 3.4)
    ax = figure.subplots()
    labels = []
    for column, (req_id, upto) in enumerate(CALLS):
        request = SimpleNamespace(req_id=req_id)
        if upto is None:
            manager.free(request)
            rows.pop(req_id, None)
            labels.append(f"free {req_id}")
        else:
            new = manager.allocate_slots(request, upto)
            rows.setdefault(req_id, []).extend(new or [])
            lengths[req_id] = upto if new is not None else lengths.get(req_id, 0)
            labels.append(f"{req_id} to {upto}\n→ {new}")
        for owner, blocks in rows.items():
            for place, block in enumerate(blocks):
                filled = min(max(lengths[owner] - place * BLOCK_SIZE, 0), BLOCK_SIZE)
                _block(ax, column, block, owner, filled)
    ax.set_xlim(-0.6, len(CALLS) - 0.4)
    ax.set_ylim(NUM_BLOCKS - 0.4, -0.6)
    ax.set_xticks(range(len(CALLS)), labels)
    ax.set_yticks(range(NUM_BLOCKS), [f"block {block}" for block in range(NUM_BLOCKS)])
    palette.bare(ax)
    palette.title(
        ax, "Your manager, call by call", f"blocks of {BLOCK_SIZE} tokens; a number is the tokens in the block"
    )
    return figure


def _block(ax: Axes, column: int, block: int, owner: str, filled: int) -> None:
    colour = palette.owner_colour("abc".index(owner))
    left, top, width, height = column - 0.46, block - 0.4, 0.92, 0.8
    ax.add_patch(Rectangle((left, top), width, height, color=palette.lighter(colour, 0.75)))
    ax.add_patch(Rectangle((left, top), width * filled / BLOCK_SIZE, height, color=colour))
    inside = filled > 1  # else the filled part is narrower than the text, which goes beside it
    ink = palette.ink_on(colour) if inside else palette.INK
    at = left + 0.06 + (0 if inside else width * filled / BLOCK_SIZE)
    ax.text(at, block, f"{owner} {filled}", va="center", fontsize=palette.NORMAL, color=ink)
