"""Paging in pictures: room that is taken and not used, and a block table beside the memory that it points into.

Owns the layout, and the count of room. Reads a trace.

vLLM: none; its log prints the share of blocks in use, which says nothing of how full they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Patch, Rectangle

from sixfold.figures.names import label
from stage1.trace import palette
from stage1.trace.reader import Trace


@dataclass(frozen=True)
class Room:
    """The KV cache in one step, in tokens."""

    step: int
    held: int  # tokens whose keys and values are in the cache
    taken: int  # slots of all blocks that have an owner


def rooms(trace: Trace) -> list[Room]:
    """A ``Room`` a step. Every block is counted for its owner, so there may be no shared ones."""
    size = trace.start.block_size
    return [
        Room(
            step,
            held=sum(trace.computed_at(step).values()),
            taken=size * sum(len(blocks) for blocks in trace.holdings_at(step).values()),
        )
        for step in trace.steps
    ]


def empty_room(trace: Trace) -> float:
    """The share of the room taken, over all steps, in which no token lay, 0..1."""
    found = rooms(trace)
    return 1 - sum(room.held for room in found) / sum(room.taken for room in found)


def most_running(trace: Trace) -> int:
    """The most requests that ran in one step."""
    return max(step.num_running for step in trace.steps.values())


def draw_room(traces: Mapping[str, Trace]) -> Figure:
    """For each engine the whole cache over its steps: tokens, room taken without tokens, and what is free above."""
    figure = palette.new_figure(9.5, 3.3)
    axes = figure.subplots(1, len(traces), sharey=True, squeeze=False)[0]
    for ax, (name, trace) in zip(axes, traces.items(), strict=True):
        found = rooms(trace)
        steps = [room.step - 0.5 for room in found] + [found[-1].step + 0.5]
        held, taken = ([*values, values[-1]] for values in zip(*((r.held, r.taken) for r in found), strict=True))
        style = {"step": "post", "linewidth": 0}
        ax.fill_between(steps, 0, held, color=palette.PROMPT, **style)
        ax.fill_between(
            steps, held, taken, facecolor="white", edgecolor=palette.LOST, hatch="////", step="post", linewidth=0
        )
        ax.plot(steps, taken, color=palette.LOST, drawstyle="steps-post", linewidth=1)
        ax.axhline(trace.start.num_blocks * trace.start.block_size, color=palette.INK, linewidth=1.2)
        ax.set_xlabel("step", fontsize=palette.NORMAL)
        palette.bare(ax)
        detail = f"{empty_room(trace):.0%} of what is taken is empty · at most {most_running(trace)} run at once"
        palette.title(ax, name, detail)
    axes[0].set_ylabel("tokens", fontsize=palette.NORMAL)
    axes[0].set_ylim(bottom=0)
    handles = [
        Patch(color=palette.PROMPT, label="tokens in the cache"),
        Patch(facecolor="white", edgecolor=palette.LOST, hatch="////", label="taken, without a token"),
        Patch(facecolor="white", edgecolor=palette.WAITING, label="free (the black line is the whole cache)"),
    ]
    figure.legend(handles=handles, fontsize=palette.SMALL, frameon=False, ncols=3, loc="outside lower left")
    return figure


def draw_block_table(trace: Trace, step: int) -> Figure:
    """Left: each request's row of the block table, in the order of its tokens. Right: the blocks in memory."""
    held, computed = trace.holdings_at(step), trace.computed_at(step)
    owners = {req_id: i for i, req_id in enumerate(trace.requests)}
    size, total = trace.start.block_size, trace.start.num_blocks
    figure = palette.new_figure(9.5, 1.0 + 0.32 * max(total, 2 * len(held)))
    tables, memory = figure.subplots(1, 2, width_ratios=[1.5, 1])
    spacing = total / max(len(held), 1)
    inside: dict[int, list[tuple[str, int, int]]] = {block: [] for block in range(total)}  # request, first, filled
    for row, (req_id, blocks) in enumerate(held.items()):
        colour, middle = palette.owner_colour(owners.get(req_id, 0)), (row + 0.5) * spacing
        tables.text(-0.15, middle, label(req_id), ha="right", va="center", fontsize=palette.NORMAL, color=palette.INK)
        for place, block in enumerate(blocks):
            inside[block].append((req_id, place * size, min(max(computed[req_id] - place * size, 0), size)))
            _entry(tables, place, middle, block, colour)
            edge = middle + (0.4 if block + 0.5 > middle else -0.4)
            line = ConnectionPatch(
                (place + 0.45, edge), (0, block + 0.5), "data", "data", axesA=tables, axesB=memory,
                color=colour, linewidth=0.8, alpha=0.6,
            )  # fmt: skip
            figure.add_artist(line)
    for block, entries in inside.items():
        _memory_block(memory, block, entries, size, owners)
    _finish(tables, memory, max((len(blocks) for blocks in held.values()), default=1), size, total)
    palette.title(tables, f"Block table in step {step}", "block ids of a request, in the order of its tokens")
    palette.title(memory, "Memory", f"blocks of {palette.count(size, 'token')}: whose positions lie in each")
    return figure


def _entry(ax: Axes, place: int, middle: float, block: int, colour: palette.Colour) -> None:
    ax.add_patch(Rectangle((place, middle - 0.4), 0.9, 0.8, facecolor=colour, edgecolor="none"))
    ink = palette.ink_on(colour)
    ax.text(place + 0.45, middle, str(block), ha="center", va="center", fontsize=palette.NORMAL, color=ink)


def _memory_block(
    ax: Axes, block: int, entries: list[tuple[str, int, int]], size: int, owners: Mapping[str, int]
) -> None:
    """A block as wide as its slots, filled up to its last token; hatched where two entries of the table name it."""
    ax.add_patch(Rectangle((0, block + 0.1), size, 0.8, facecolor="white", edgecolor=palette.WAITING))
    for req_id, _, filled in entries:
        colour = palette.owner_colour(owners.get(req_id, 0))
        for width, tint in ((size, palette.lighter(colour, 0.75)), (filled, colour)):
            ax.add_patch(Rectangle((0, block + 0.1), width, 0.8, facecolor=tint, edgecolor="none"))
    text = " + ".join(f"{label(req_id)}: [{first}, {first + filled})" for req_id, first, filled in entries)
    if len(entries) > 1:
        ax.add_patch(Rectangle((0, block + 0.1), size, 0.8, fill=False, edgecolor=palette.LOST, hatch="////"))
        box = {"facecolor": "white", "edgecolor": palette.LOST, "pad": 1.5}
        ax.text(size / 2, block + 0.5, text, ha="center", va="center", fontsize=palette.SMALL, bbox=box)
    elif entries:
        filled = entries[0][2]
        fits = filled * 2 >= size
        ink = palette.ink_on(palette.owner_colour(owners.get(entries[0][0], 0))) if fits else palette.INK
        x = 0.1 if fits else filled + 0.1
        ax.text(x, block + 0.5, text, va="center", fontsize=palette.SMALL, color=ink)


def _finish(tables: Axes, memory: Axes, width: int, size: int, total: int) -> None:
    """Axes without frames, one unit of height a block."""
    tables.set_xlim(-1.2, width + 0.3)
    memory.set_xlim(0, size + 0.05)
    memory.set_yticks([block + 0.5 for block in range(total)], [str(block) for block in range(total)])
    memory.yaxis.tick_right()
    for ax in (tables, memory):
        ax.set_ylim(total, -0.2)
        ax.set_xticks([])
        palette.bare(ax)
        ax.spines["bottom"].set_visible(False)
        ax.tick_params(axis="y", length=0)
    tables.set_yticks([])
