"""Drafts in pictures: what each step verified, and what stayed of it.

Owns the counts and the layout. Reads a trace; the figures of a distribution read plain numbers.

vLLM: none; ``v1/spec_decode/metrics.py`` logs the acceptance length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from stage1.trace import palette
from stage1.trace.events import StepScheduled
from stage1.trace.reader import Trace

STAYED, OWN, REJECTED = palette.PROMPT, palette.SINGLE, "white"


@dataclass(frozen=True)
class Verdict:
    """One request in one step that gave it tokens."""

    step: int
    place: int  # output position of the first token it gave
    num_drafts: int
    num_tokens: int  # that the request got: the drafts that stayed, and one of the target's own

    @property
    def num_rejected(self) -> int:
        """Drafts that were computed for nothing."""
        return max(self.num_drafts + 1 - self.num_tokens, 0)


def verdicts(trace: Trace, req_id: str | None = None) -> list[Verdict]:
    """What the steps gave, in their order; of one request, or of all."""
    places: dict[str, int] = {}
    found = []
    for event in trace.events:
        if not isinstance(event, StepScheduled):
            continue
        for name, ids in trace.steps[event.step].sampled.items():
            place = places.get(name, 0)
            places[name] = place + len(ids)
            if ids and req_id in (None, name):
                found.append(Verdict(event.step, place, event.drafts.get(name, 0), len(ids)))
    return found


def num_steps(trace: Trace) -> int:
    """Steps that gave anybody a token: how often the weights were read for output."""
    return len({verdict.step for verdict in verdicts(trace)})


def acceptance_length(trace: Trace) -> float:
    """Tokens a request gets from a step, on average: 1 without drafts, at most 1 + drafts.

    Raises:
        ValueError: the trace has no tokens.
    """
    found = verdicts(trace)
    if not found:
        raise ValueError("the trace has no step that gave a token: serve a request first")
    return sum(verdict.num_tokens for verdict in found) / len(found)


def acceptance_rate(trace: Trace) -> float | None:
    """Share of the drafts that stayed; ``None`` where there were none."""
    drafted = [verdict for verdict in verdicts(trace) if verdict.num_drafts]
    stayed = sum(min(verdict.num_tokens, verdict.num_drafts + 1) - 1 for verdict in drafted)
    return stayed / sum(verdict.num_drafts for verdict in drafted) if drafted else None


def draw_verdicts(traces: Mapping[str, Trace]) -> Figure:
    """A panel a trace of one request, a row a step, a box a position: what stayed, and what was computed in vain."""
    found = {name: verdicts(trace) for name, trace in traces.items()}
    most = max(v.place + v.num_tokens + v.num_rejected for rows in found.values() for v in rows)
    figure = palette.new_figure(9.5, 1.4 + 0.17 * sum(len(rows) + 4 for rows in found.values()))
    heights = [len(rows) + 4 for rows in found.values()]
    panels = figure.subplots(len(found), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for ax, (name, rows) in zip(panels, found.items(), strict=True):
        for row, verdict in enumerate(rows, 1):
            stayed = min(verdict.num_tokens - 1, verdict.num_drafts)
            colours = [STAYED] * stayed + [OWN] * (verdict.num_tokens - stayed) + [REJECTED] * verdict.num_rejected
            for offset, colour in enumerate(colours):
                box = (verdict.place + offset + 0.04, row - 0.42)
                ax.add_patch(Rectangle(box, 0.92, 0.84, facecolor=colour, edgecolor=palette.PALE, linewidth=0.6))
        ax.set_xlim(0, most + 0.2)
        ax.set_ylim(len(rows) + 0.8, 0.2)
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_ylabel("step", fontsize=palette.SMALL, color=palette.INK)
        palette.bare(ax)
        tokens = sum(verdict.num_tokens for verdict in rows)
        palette.title(ax, name, f"{palette.count(tokens, 'token')} in {palette.count(len(rows), 'step')}")
    panels[-1].set_xlabel("position in the output", fontsize=palette.NORMAL, color=palette.INK)
    handles = [
        Patch(facecolor=STAYED, label="a draft that stayed"),
        Patch(facecolor=OWN, label="the target's own token"),
        Patch(facecolor=REJECTED, edgecolor=palette.PALE, label="a draft computed in vain"),
    ]
    figure.legend(handles=handles, fontsize=palette.SMALL, frameon=False, ncols=3, loc="outside lower left")
    return figure


def draw_distributions(names: Sequence[str], exact: Sequence[float], drawn: Mapping[str, Sequence[float]]) -> Figure:
    """A group of bars a token: the target's probability, and how often each rule gave that token; shares of 1."""
    rows = {"the target": exact, **drawn}
    width = 0.8 / len(rows)
    figure = palette.new_figure(8.5, 3.2)
    ax = figure.subplots()
    for index, (label, shares) in enumerate(rows.items()):
        places = [token + (index - (len(rows) - 1) / 2) * width for token in range(len(names))]
        ax.bar(places, shares, width=0.92 * width, color=palette.owner_colour(index), label=label)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylabel("share", fontsize=palette.SMALL, color=palette.INK)
    palette.bare(ax)
    ax.legend(fontsize=palette.SMALL, frameon=False)
    palette.title(ax, "What comes out", "the distribution of the next token")
    return figure
