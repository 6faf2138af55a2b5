"""The flattened batch of one step, and who sees whom in it.

Owns the layout. Reads one ``ForwardBatch``, as a runner hook gets it.

vLLM: ``v1/worker/gpu_model_runner.py`` (``_prepare_inputs``) makes the counterpart.
"""

from __future__ import annotations

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from sixfold.figures.names import label
from stage1.batch import ForwardBatch
from stage1.trace import palette


def draw_flat_batch(batch: ForwardBatch, block_size: int) -> Figure:
    """Token ids, positions and cache slots of every token, behind each other, a colour a request."""
    starts = batch.query_start.tolist()
    rows = {
        "input_ids": batch.input_ids.tolist(),
        "positions": batch.positions.tolist(),
        "slot_mapping": batch.slot_mapping.tolist(),
    }
    figure = palette.new_figure(min(3.0 + 0.42 * batch.num_tokens, 15.0), 2.9)
    ax = figure.subplots()
    for row, values in enumerate(rows.values()):
        for token, value in enumerate(values):
            owner = sum(start <= token for start in starts) - 1
            colour = palette.lighter(palette.owner_colour(owner), 0.25 * row)
            ax.add_patch(Rectangle((token + 0.03, row + 0.08), 0.94, 0.84, color=colour))
            ink = palette.ink_on(colour)
            ax.text(token + 0.5, row + 0.5, value, ha="center", va="center", fontsize=palette.SMALL, color=ink)
    for request, (start, end) in enumerate(pairwise(starts)):
        name = f"{label(batch.states[request].req_id)}: [{start}, {end})"
        ax.text(start + 0.05, -0.16, name, fontsize=palette.NORMAL, color=palette.INK)
        ax.plot([start, start], [0, 3.25], color=palette.INK, linewidth=1.4)
        ax.text(end - 0.5, 3.3, "▲ logits", ha="center", va="center", fontsize=palette.SMALL, color=palette.PALE)
    ax.set_xlim(-0.05, batch.num_tokens + 0.05)
    ax.set_ylim(3.6, -0.5)
    ax.set_yticks([row + 0.5 for row in range(3)], list(rows))
    ax.set_xticks([])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    palette.title(
        ax,
        "One step, flattened",
        f"T = {batch.num_tokens} tokens of {palette.count(batch.num_reqs, 'request')} · query_start = {starts} · "
        f"slot = block * {block_size:,} + position % {block_size:,}",
    )
    return figure


def draw_mask(batch: ForwardBatch) -> Figure:
    """A row a query token, a column a key in the cache: filled where the query sees the key."""
    figure = palette.new_figure(7.5, 4.0, "compressed")
    ax = figure.subplots()
    first_key = 0
    starts = batch.query_start.tolist()
    for request, (start, end) in enumerate(pairwise(starts)):
        num_keys = int(batch.seq_lens[request])
        _draw_request(ax, batch.positions[start:end].tolist(), start, first_key, num_keys, request)
        first_key += num_keys
    ax.set_xlim(-0.1, first_key + 0.1)
    ax.set_ylim(batch.num_tokens + 0.1, -0.1)
    ax.set_aspect("equal")
    ax.set_xlabel("keys in the cache, request by request", fontsize=palette.NORMAL)
    ax.set_ylabel("query tokens of the step", fontsize=palette.NORMAL)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    ax.tick_params(labelsize=palette.SMALL)
    palette.title(ax, "Who sees whom", "each query sees the keys of its own request, up to its own position")
    return figure


def _draw_request(ax: Axes, positions: list[int], row: int, column: int, num_keys: int, owner: int) -> None:
    """The rectangle of one request: tinted, and filled up to each query's position."""
    colour = palette.owner_colour(owner)
    box = Rectangle((column, row), num_keys, len(positions), color=palette.lighter(colour, 0.82), linewidth=0)
    ax.add_patch(box)
    for i, position in enumerate(positions):
        for key in range(position + 1):
            ax.add_patch(Rectangle((column + key + 0.06, row + i + 0.06), 0.88, 0.88, color=colour, linewidth=0))


def padded_share(lengths: list[int]) -> float:
    """The share of a padded batch [requests, longest] that is padding, 0..1."""
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


def draw_padding(lengths: list[int]) -> Figure:
    """Above: every row as long as the longest. Below: the same tokens behind each other."""
    figure = palette.new_figure(9.0, 1.6 + 0.24 * len(lengths))
    padded, flat = figure.subplots(2, 1, height_ratios=[len(lengths), 1.3])
    start = 0
    for row, length in enumerate(lengths):
        colour = palette.owner_colour(row)
        padded.barh(row, max(lengths), height=0.8, facecolor="white", edgecolor=palette.WAITING, hatch="////")
        padded.barh(row, length, height=0.8, color=colour)
        flat.barh(0, length, left=start, color=colour)
        start += length
    padded.invert_yaxis()
    padded.set_xlim(0, max(lengths))
    flat.set_xlim(0, max(start, 1))
    for ax in (padded, flat):
        ax.set_yticks([])
        palette.bare(ax)
    total = len(lengths) * max(lengths)
    palette.title(padded, "Padded", f"{total} positions are computed, {padded_share(lengths):.0%} of them for nothing")
    palette.title(flat, "Flattened", f"{start} positions are computed")
    return figure
