"""The block map: every block of the KV cache in one step, in the colour of the request that holds it.

Owns the layout. Reads a ``Trace`` only. A block is tinted as far as it is reserved and coloured as far as it is filled,
so what is reserved and empty is visible at a glance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from stage1.trace import palette
from stage1.trace.reader import Trace

_MOST_BARS = 16  # blocks, up to which each is drawn as a long bar
_MOST_CELLS = 2048  # blocks, beyond which the rest is only counted
_GAP = 0.06  # between blocks, in block widths


def draw_blocks(trace: Trace, step: int) -> Figure:
    """Who holds which block while ``step`` computes, and how full it is after that.

    Raises:
        ValueError: the trace has no such step.
    """
    cells = _cells(trace, step)
    drawn = min(trace.start.num_blocks, _MOST_CELLS)
    owners = {req_id: i for i, req_id in enumerate(trace.requests)}
    if drawn <= _MOST_BARS:
        figure = palette.new_figure(9.0, 1.3 + 0.38 * drawn)
        ax = figure.subplots()
        _draw_bars(ax, cells, drawn, owners, trace.start.block_size)
    else:
        columns = 2 ** round(math.log2(math.sqrt(2.2 * drawn)))
        rows = math.ceil(drawn / columns)
        handles = _legend_handles(cells, owners)
        figure = palette.new_figure(9.0, 1.3 + 8.2 * rows / columns + 0.2 * math.ceil(len(handles) / 5), "compressed")
        ax = figure.subplots()
        _draw_grid(ax, cells, drawn, columns, owners, trace.start.block_size)
        figure.legend(
            handles=handles,
            title="request (its blocks)",
            title_fontsize=palette.SMALL,
            alignment="left",
            fontsize=palette.SMALL,
            frameon=False,
            ncols=5,
            loc="outside lower left",
            handlelength=1.2,
        )
    tokens = sum(cell.num_tokens for cell in cells.values())
    used, total = len(cells), trace.start.num_blocks
    room = max(used * trace.start.block_size, 1)
    rest = f" · blocks [{drawn:,}, {total:,}) not drawn" if total > drawn else ""
    palette.title(
        ax,
        f"KV blocks in step {step}",
        f"{used:,} of {palette.count(total, 'block')} in use, {trace.start.block_size:,} tokens each · "
        f"{palette.count(tokens, 'token')} held, {tokens / room:.1%} of the room that is taken{rest}",
    )
    return figure


@dataclass(frozen=True, slots=True)
class _Cell:
    owners: tuple[str, ...]
    num_tokens: int  # filled, of block_size


def _cells(trace: Trace, step: int) -> dict[int, _Cell]:
    """The blocks in use; a shared one is as full as its fullest holder says."""
    computed = trace.computed_at(step)
    size = trace.start.block_size
    filled: dict[int, int] = {}
    for req_id, blocks in trace.holdings_at(step).items():
        for i, block in enumerate(blocks):
            inside = min(max(computed[req_id] - i * size, 0), size)
            filled[block] = max(filled.get(block, 0), inside)
    return {block: _Cell(ids, filled[block]) for block, ids in trace.blocks_at(step).items()}


def _draw_bars(ax: Axes, cells: dict[int, _Cell], drawn: int, owners: dict[str, int], block_size: int) -> None:
    """Few large blocks: a bar each, as long as a block."""
    for block in range(drawn):
        cell = cells.get(block)
        text = "free"
        if cell is None:
            _box(ax, 0, block, block_size, 0.7, None, 0, f"block {block}")
        else:
            colour = palette.owner_colour(owners.get(cell.owners[0], 0))
            _box(ax, 0, block, block_size, 0.7, colour, cell.num_tokens, f"block {block}")
            text = f"{_names(cell.owners)} · {cell.num_tokens:,} of {block_size:,} tokens"
        ax.text(
            block_size * 0.99, block + 0.35, text, ha="right", va="center", fontsize=palette.NORMAL, color=palette.INK
        )
    ax.set_xlim(0, block_size * 1.002)
    ax.set_ylim(drawn, -0.3)
    ax.set_yticks([block + 0.35 for block in range(drawn)], [f"block {block}" for block in range(drawn)])
    ax.set_xlabel("tokens in the block", fontsize=palette.NORMAL, color=palette.INK)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    palette.bare(ax)
    ax.tick_params(axis="y", length=0)


def _draw_grid(
    ax: Axes, cells: dict[int, _Cell], drawn: int, columns: int, owners: dict[str, int], block_size: int
) -> None:
    """Many small blocks: a grid, row by row; shared ones are hatched."""
    size = 1 - _GAP
    for block in range(drawn):
        row, column = divmod(block, columns)
        cell = cells.get(block)
        if cell is None:
            _box(ax, column, row, size, size, None, 0, f"block {block}")
            continue
        colour = palette.owner_colour(owners.get(cell.owners[0], 0))
        _box(ax, column, row, size, size, colour, size * cell.num_tokens / block_size, f"block {block}")
        if len(cell.owners) > 1:
            shade = Rectangle((column, row), size, size, fill=False, hatch="////", edgecolor=palette.INK, linewidth=0.6)
            ax.add_patch(shade).set_gid(f"shared block {block}")
    rows = math.ceil(drawn / columns)
    ax.set_xlim(-0.2, columns + 0.1)
    ax.set_ylim(rows + 0.1, -0.2)
    ax.set_aspect("equal")
    every = max(1, rows // 16)
    ax.set_yticks([row + 0.5 for row in range(0, rows, every)], [f"{row * columns}" for row in range(0, rows, every)])
    ax.set_ylabel("number of the first block in the row", fontsize=palette.NORMAL, color=palette.INK)
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_xticks([])


def _legend_handles(cells: dict[int, _Cell], owners: dict[str, int]) -> list[Patch]:
    """A patch an owner, in order of arrival; as many as there are colours."""
    counts: dict[str, int] = {}
    for cell in cells.values():
        for owner in cell.owners:
            counts[owner] = counts.get(owner, 0) + 1
    by_arrival = sorted(counts, key=lambda owner: owners.get(owner, 0))
    handles = [
        Patch(color=palette.owner_colour(owners.get(owner, 0)), label=f"{palette.short(owner)} ({counts[owner]})")
        for owner in by_arrival[: palette.NUM_OWNER_COLOURS]
    ]
    if len(by_arrival) > len(handles):
        handles.append(Patch(color="white", label=f"and {len(by_arrival) - len(handles)} more"))
    if any(len(cell.owners) > 1 for cell in cells.values()):
        handles.append(Patch(facecolor="white", edgecolor=palette.INK, hatch="////", label="shared"))
    handles.append(Patch(facecolor="white", edgecolor=palette.WAITING, label="free"))
    return handles


def _box(
    ax: Axes, x: float, y: float, width: float, height: float, colour: palette.Colour | None, fill: float, gid: str
) -> None:
    """A block's outline, tinted when it is taken, and its filled part: ``fill`` in the unit of ``width``."""
    tint = "white" if colour is None else palette.lighter(colour, 0.72)
    edge = palette.WAITING if colour is None else colour
    box = Rectangle((x, y), width, height, facecolor=tint, edgecolor=edge, linewidth=0.6, gid=gid)
    ax.add_patch(box)
    if colour is not None and fill > 0:
        ax.add_patch(Rectangle((x, y), fill, height, facecolor=colour, linewidth=0, gid=f"fill of {gid}"))


def _names(owners: tuple[str, ...]) -> str:
    return palette.short(owners[0]) + (f" and {len(owners) - 1} more" if len(owners) > 1 else "")
