"""What plain torch moves to attend to a paged cache, against what has to be read.

Owns the count and the layout. A row is one token's keys and values in one layer.

vLLM: none; its first versions had a kernel for it already.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from stage1.trace import palette

PASSES = ("read from the cache", "written as a copy", "read from the copy")


def gathered_rows(lengths: Sequence[int]) -> int:
    """Rows that one step copies out of the cache: every request is as long as the longest."""
    return len(lengths) * max(lengths)


def moved_factor(lengths: Sequence[int]) -> float:
    """How many times as many bytes the plain way moves as a kernel that reads every row once."""
    return len(PASSES) * gathered_rows(lengths) / sum(lengths)


def draw_gather(lengths: Sequence[int]) -> Figure:
    """Left: the copy, a bar a request, padding hatched. Right: rows that travel, one bar a way."""
    figure = palette.new_figure(10.0, 1.6 + 0.3 * len(lengths))
    copy, travel = figure.subplots(1, 2, width_ratios=[3, 2])
    for row, length in enumerate(lengths):
        copy.barh(row, max(lengths), height=0.75, facecolor="white", edgecolor=palette.WAITING, hatch="////")
        copy.barh(row, length, height=0.75, color=palette.owner_colour(row))
    copy.set_yticks(range(len(lengths)), [f"{length:,} keys" for length in lengths])
    copy.invert_yaxis()
    copy.set_xlim(0, max(lengths))

    total, needed = gathered_rows(lengths), sum(lengths)
    start = 0
    shades = [palette.lighter(palette.LOST, 0.25 * i) for i in range(len(PASSES))]
    for shade in shades:
        travel.barh(0, total, left=start, height=0.55, color=shade)
        start += total
    travel.barh(1, needed, height=0.55, color=palette.PROMPT)
    travel.set_yticks([0, 1], ["plain torch", "a kernel"])
    travel.invert_yaxis()
    travel.set_xlabel("rows of keys and values", fontsize=palette.NORMAL)
    handles = [Patch(color=shade, label=text) for shade, text in zip(shades, PASSES, strict=True)]
    travel.legend(handles=handles, loc="lower right", fontsize=palette.SMALL, frameon=False)
    for ax in (copy, travel):
        palette.bare(ax)
    palette.title(
        copy, "The copy that plain torch makes", f"{total:,} rows in each layer and step, {needed:,} are needed"
    )
    palette.title(travel, "What travels", f"{moved_factor(lengths):.1f} times as much as necessary")
    return figure
