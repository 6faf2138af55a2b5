"""Attention in pieces: the running softmax, and programs on the multiprocessors of a GPU.

Owns the layout, and a simulated clock: a multiprocessor runs one program at a time, and a tile takes one tick.

vLLM: none; its kernels make the same choice of splits.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stage1.trace import palette


@dataclass(frozen=True)
class Program:
    """One program of a launch, where and when it ran."""

    request: int
    split: int
    processor: int
    start: int  # ticks
    tiles: int


def programs_of(
    lengths: Sequence[int], kv_heads: int, num_splits: int, processors: int, tile: int, min_tiles: int
) -> list[Program]:
    """The programs of a launch in the order of its grid; each goes to the processor that is free first."""
    free = [(0, processor) for processor in range(processors)]
    heapq.heapify(free)
    programs = []
    for split in range(num_splits):
        for request, length in enumerate(lengths):
            tiles = -(-length // tile)
            size = max(min_tiles, -(-tiles // num_splits))
            own = min(size, tiles - split * size)
            if own <= 0:  # ends at once
                continue
            for _ in range(kv_heads):
                start, processor = heapq.heappop(free)
                programs.append(Program(request, split, processor, start, own))
                heapq.heappush(free, (start + own, processor))
    return programs


def ticks(programs: Sequence[Program]) -> int:
    """When the last one is done."""
    return max(program.start + program.tiles for program in programs)


def draw_programs(launches: dict[str, Sequence[Program]], processors: int) -> Figure:
    """A panel a launch, a line a multiprocessor, a bar a program in the colour of its request."""
    figure = palette.new_figure(10.0, (0.9 + 0.16 * processors) * len(launches) + 0.4)
    panels = figure.subplots(len(launches), 1, sharex=True, squeeze=False)[:, 0]
    longest = max(ticks(programs) for programs in launches.values())
    for ax, (name, programs) in zip(panels, launches.items(), strict=True):
        for p in programs:
            colour = palette.lighter(palette.owner_colour(p.request), 0.18 * (p.split % 3))
            ax.add_patch(
                Rectangle(
                    (p.start, p.processor + 0.08), p.tiles, 0.84, facecolor=colour, edgecolor="white", linewidth=0.5
                )
            )
        busy = sum(p.tiles for p in programs) / (processors * ticks(programs))
        ax.set_xlim(0, longest * 1.02)
        ax.set_ylim(processors, 0)
        ax.set_yticks([])
        ax.set_ylabel(f"{processors} processors", fontsize=palette.SMALL)
        palette.bare(ax)
        detail = (
            f"{palette.count(len(programs), 'program')}, {ticks(programs)} ticks, {busy:.0%} of the processors busy"
        )
        palette.title(ax, name, detail)
    panels[-1].set_xlabel("ticks; simulated: a tile takes one", fontsize=palette.NORMAL)
    return figure


def draw_running_softmax(scores: torch.Tensor, tile: int) -> Figure:
    """``scores`` [keys]: above, the scores and the largest so far; below, the sum of weights, rescaled at each tile."""
    figure = palette.new_figure(9.5, 4.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    best, total = float("-inf"), 0.0
    for index, part in enumerate(scores.split(tile)):
        place = index * tile
        new_best = max(best, float(part.max()))
        kept = total * float(torch.tensor(best - new_best).exp())
        total = kept + float((part - new_best).exp().sum())
        above.bar(range(place, place + len(part)), part.tolist(), color=palette.owner_colour(index), width=0.85)
        above.plot([place - 0.5, place + len(part) - 0.5], [new_best] * 2, color=palette.INK, linewidth=1.5)
        _sum_so_far(below, place + (len(part) - 1) / 2, len(part) * 0.6, kept, total, index)
        best = new_best
    above.set_ylabel("score", fontsize=palette.NORMAL)
    below.set_ylabel("sum of weights", fontsize=palette.NORMAL)
    below.set_xlabel("key", fontsize=palette.NORMAL)
    for ax in (above, below):
        palette.bare(ax)
    palette.title(
        above, "A softmax that never sees the whole row", "a colour a tile; the line is the largest score so far"
    )
    palette.title(below, "What is kept", "grey: the old sum, after it was shrunk to the new largest score")
    return figure


def _sum_so_far(ax: Axes, middle: float, width: float, kept: float, total: float, index: int) -> None:
    ax.bar(middle, kept, width=width, color=palette.WAITING)
    ax.bar(middle, total - kept, bottom=kept, width=width, color=palette.owner_colour(index))
    ax.text(middle, total, f"{total:.2f}", ha="center", va="bottom", fontsize=palette.SMALL)


def draw_lengths(bad: torch.Tensor, lengths: Sequence[int], what: str) -> Figure:
    """``bad`` [requests, queries] bool, a column a request of ``lengths`` keys: where something is wrong."""
    figure = palette.new_figure(10.0, 1.2 + 0.35 * bad.shape[1])
    ax = figure.subplots()
    for query in range(bad.shape[1]):
        for r in range(bad.shape[0]):
            colour = palette.LOST if bad[r, query] else palette.GRID
            ax.add_patch(Rectangle((r + 0.05, query + 0.06), 0.9, 0.88, color=colour, linewidth=0))
    ax.set_xlim(-0.2, len(lengths) + 0.2)
    ax.set_xticks([r + 0.5 for r in range(len(lengths))], [str(n) for n in lengths], rotation=90)
    ax.set_ylim(bad.shape[1], 0)
    ax.set_yticks([q + 0.5 for q in range(bad.shape[1])], [f"query {q}" for q in range(bad.shape[1])])
    ax.set_xlabel("keys of the request", fontsize=palette.NORMAL)
    palette.bare(ax)
    palette.title(ax, what, f"{int(bad.sum())} of {bad.numel():,} results")
    return figure
