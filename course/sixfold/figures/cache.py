"""Blocks of the KV cache: what one holds in bytes, and who has which.

Owns the layout. Reads a model's shape and a trace.

vLLM: ``v1/kv_cache_interface.py`` computes the same bytes, ``v1/core/kv_cache_utils.py`` (``FreeKVCacheBlockQueue``) is
its list of free blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sixfold.figures.names import label
from stage1.model.shape import ModelShape
from stage1.trace import palette
from stage1.trace.reader import Trace


def draw_block_bytes(shape: ModelShape, block_size: int, dtype: torch.dtype) -> Figure:
    """From one number to a whole block, a bar a factor, on a logarithmic axis."""
    factors = [
        ("one number", dtype.itemsize),
        (f"× {shape.head_dim} numbers a head", shape.head_dim),
        (f"× {shape.num_kv_heads} KV heads", shape.num_kv_heads),
        ("× 2, keys and values", 2),
        (f"× {shape.num_layers} layers = one token", shape.num_layers),
        (f"× {block_size:,} tokens = one block", block_size),
    ]
    figure = palette.new_figure(9.0, 2.7)
    ax = figure.subplots()
    size = 1
    for row, (_, factor) in enumerate(factors):
        ax.barh(row, size * factor, left=1, height=0.66, color=palette.SINGLE)
        ax.barh(row, size * factor - size, left=size, height=0.66, color=palette.PROMPT)
        size *= factor
        ax.text(size * 1.15, row, f"{_bytes(size)}", va="center", fontsize=palette.NORMAL, color=palette.INK)
    ax.set_xscale("log")
    ax.set_xlim(1, size * 20)
    ax.set_yticks(range(len(factors)), [name for name, _ in factors])
    ax.invert_yaxis()
    ax.set_xlabel("bytes", fontsize=palette.NORMAL)
    palette.bare(ax)
    palette.title(
        ax,
        "What a block costs",
        f"{str(dtype).removeprefix('torch.')}, {shape.num_heads} query heads share {shape.num_kv_heads} KV heads",
    )
    return figure


def _bytes(number: int) -> str:
    """``number`` in the unit that gives one to four digits: 46,080 → 45 KiB."""
    size, unit = float(number), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"


def draw_block_list(trace: Trace, steps: Sequence[int]) -> Figure:
    """A line a step: the blocks with the id of the request that has them, and the list of free ones beside."""
    total = trace.start.num_blocks
    owners = {req_id: i for i, req_id in enumerate(trace.requests)}
    figure = palette.new_figure(9.0, 1.2 + 0.5 * len(steps))
    ax = figure.subplots()
    for row, step in enumerate(steps):
        held = trace.blocks_at(step)
        for block in range(total):
            _block(ax, block, row, block, held.get(block, ()), owners)
        free = [block for block in range(total) if block not in held]
        text = " → ".join(map(str, free)) if free else "none"
        waiting = trace.steps[step].num_waiting
        note = f"free: {text}" + (f"   ({waiting} waiting)" if waiting else "")
        ax.text(total + 0.3, row + 0.5, note, va="center", fontsize=palette.NORMAL, color=palette.INK)
    ax.set_xlim(-0.1, total * 1.9 + 2)
    ax.set_ylim(len(steps) + 0.1, -0.1)
    ax.set_yticks([row + 0.5 for row in range(len(steps))], [f"step {step}" for step in steps])
    ax.set_xticks([block + 0.5 for block in range(total)], [f"block {block}" for block in range(total)])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    palette.title(ax, "Which request has which block", "the manager moves blocks between requests and the free list")
    return figure


def _block(ax: Axes, x: float, y: float, block: int, holders: tuple[str, ...], owners: dict[str, int]) -> None:
    """One block: white when free, in the colour of its request, hatched when two have it."""
    colour = palette.owner_colour(owners.get(holders[0], 0)) if holders else (1.0, 1.0, 1.0)
    hatch = "///" if len(holders) > 1 else None
    ax.add_patch(Rectangle((x + 0.05, y + 0.1), 0.9, 0.8, facecolor=colour, edgecolor=palette.WAITING, hatch=hatch))
    text = " + ".join(label(holder) for holder in holders[:2]) or "free"
    ink = palette.ink_on(colour)
    back = {"facecolor": colour, "edgecolor": "none", "pad": 1.5} if hatch else None
    ax.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=palette.SMALL, color=ink, bbox=back)
