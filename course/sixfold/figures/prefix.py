"""Prefix caching in pictures: what each request computes and reuses, and whose blocks stand in its table.

Owns the counts of reuse, and the layout. Reads a trace, so it says what was taken over, not what could have been.

vLLM: none; its log prints the share of tokens that were found, which says nothing of who shares with whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from sixfold.figures.names import label
from stage1.trace import palette
from stage1.trace.events import BlocksShared, BlocksTaken, StepScheduled
from stage1.trace.reader import Trace

COLUMNS = 8  # of the map of memory


@dataclass
class Work:
    """Tokens of one request."""

    computed: int = 0  # by the model, in all steps
    reused: int = 0  # found in the cache, over all admissions


def work(trace: Trace) -> dict[str, Work]:
    """Request → its ``Work``, in order of arrival."""
    found = {req_id: Work() for req_id in trace.requests}
    for event in trace.events:
        if isinstance(event, BlocksShared):
            found[event.req_id].reused += event.num_tokens
        elif isinstance(event, StepScheduled):
            for req_id, (_, n) in event.tokens.items():
                found[req_id].computed += n
    return found


def computed_tokens(trace: Trace) -> int:
    """Tokens that went through the model."""
    return sum(each.computed for each in work(trace).values())


def hit_rate(trace: Trace) -> float:
    """Of all prompts' tokens, the share that was reused, 0..1. Nobody may have been preempted."""
    prompts = sum(life.num_prompt_tokens for life in trace.requests.values())
    return sum(each.reused for each in work(trace).values()) / prompts


def writers_at(trace: Trace, step: int) -> dict[int, str]:
    """Block → the request that it was handed out to last, up to ``step``: who wrote what it holds."""
    writers: dict[int, str] = {}
    for event in trace.events:
        if isinstance(event, StepScheduled) and event.step == step:
            break
        if isinstance(event, BlocksTaken):
            writers.update(dict.fromkeys(event.block_ids, event.req_id))
    return writers


def draw_work(traces: Mapping[str, Trace]) -> Figure:
    """A panel an engine, a bar a request: tokens that were computed, and above them those that were reused."""
    figure = palette.new_figure(9.5, 3.2)
    axes = figure.subplots(1, len(traces), sharey=True, squeeze=False)[0]
    for ax, (name, trace) in zip(axes, traces.items(), strict=True):
        found = work(trace)
        computed, reused = ([getattr(each, kind) for each in found.values()] for kind in ("computed", "reused"))
        places = range(len(found))
        ax.bar(places, computed, color=palette.PROMPT)
        ax.bar(places, reused, bottom=computed, facecolor="white", edgecolor=palette.PROMPT, hatch="....")
        ax.set_xticks(places, [label(req_id).removeprefix("req ") for req_id in found])
        ax.set_xlabel("request", fontsize=palette.NORMAL)
        palette.bare(ax)
        palette.title(ax, name, f"{sum(computed):,} tokens computed, {sum(reused):,} reused")
    axes[0].set_ylabel("tokens", fontsize=palette.NORMAL)
    handles = [
        Patch(color=palette.PROMPT, label="computed"),
        Patch(facecolor="white", edgecolor=palette.PROMPT, hatch="....", label="reused"),
    ]
    figure.legend(handles=handles, fontsize=palette.SMALL, frameon=False, ncols=2, loc="outside lower left")
    return figure


def draw_sharing(trace: Trace, step: int) -> Figure:
    """Left: each request's block table, every block in the colour of who wrote it. Right: all blocks of the cache.

    A block without an owner keeps the pale colour of its writer: it may still hold what was written.
    """
    held, writers = trace.holdings_at(step), writers_at(trace, step)
    order = {req_id: i for i, req_id in enumerate(trace.requests)}
    total = trace.start.num_blocks
    figure = palette.new_figure(10.0, 1.3 + 0.45 * max(len(held), -(-total // COLUMNS)))
    widest = max((len(blocks) for blocks in held.values()), default=1)
    tables, memory = figure.subplots(1, 2, width_ratios=[1.2 + widest, COLUMNS])
    for row, (req_id, blocks) in enumerate(held.items()):
        own = palette.owner_colour(order[req_id])
        tables.text(-0.15, row, label(req_id), ha="right", va="center", fontsize=palette.NORMAL, color=own)
        for place, block in enumerate(blocks):
            writer = writers[block]
            _box(tables, place, row, str(block), palette.owner_colour(order[writer]), is_framed=writer != req_id)
    owners = trace.blocks_at(step)
    for block in range(total):
        row, place = divmod(block, COLUMNS)
        colour = palette.owner_colour(order[writers[block]]) if block in writers else palette.lighter(palette.GRID, 1)
        count = len(owners.get(block, ()))
        shown = colour if count else palette.lighter(colour, 0.75)
        _box(memory, place, row, f"{block} × {count}" if count > 1 else str(block), shown, is_framed=count > 1)
    _finish(tables, (-1.2, widest + 0.1), len(held))
    _finish(memory, (-0.1, COLUMNS + 0.1), -(-total // COLUMNS))
    palette.title(
        tables, f"Block tables in step {step}", "colour: who wrote it · framed: taken over from another request"
    )
    palette.title(memory, "Memory", "× owners · pale: without an owner, still written · white: never used")
    return figure


def _box(ax: Axes, place: float, row: float, text: str, colour: palette.Colour, *, is_framed: bool) -> None:
    edge = palette.INK if is_framed else palette.WAITING
    width = 2.0 if is_framed else 0.6
    ax.add_patch(Rectangle((place, row - 0.36), 0.88, 0.72, facecolor=colour, edgecolor=edge, linewidth=width))
    ink = palette.ink_on(colour)
    ax.text(place + 0.44, row, text, ha="center", va="center", fontsize=palette.SMALL, color=ink)


def _finish(ax: Axes, width: tuple[float, float], rows: int) -> None:
    """No axes, one unit of height a row."""
    ax.set_xlim(*width)
    ax.set_ylim(max(rows, 1) - 0.4, -0.6)
    ax.set_xticks([])
    ax.set_yticks([])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
