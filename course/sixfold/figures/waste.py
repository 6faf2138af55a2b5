"""The waste of static batching: seats by steps.

Owns the layout, and the count of empty seats. Reads a trace.

vLLM: none; its scheduler refills seats at every step.
"""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sixfold.figures.names import label
from stage1.trace import palette
from stage1.trace.reader import Trace


def empty_share(trace: Trace) -> float:
    """The share of all seats of all steps in which nothing was computed, 0..1."""
    seats = trace.start.max_num_seqs * len(trace.steps)
    return 1 - sum(len(step.tokens) for step in trace.steps.values()) / seats


def draw_waste(trace: Trace) -> Figure:
    """A line a seat, a cell a step, a colour a request; hatched where the seat stood empty."""
    seats, steps = trace.start.max_num_seqs, list(trace.steps.values())
    owners = {req_id: i for i, req_id in enumerate(trace.requests)}
    figure = palette.new_figure(min(3.0 + 0.26 * len(steps), 15.0), 1.5 + 0.42 * seats)
    ax = figure.subplots()
    seat_of: dict[str, int] = {}
    for column, step in enumerate(steps):
        seat_of = {req_id: seat for req_id, seat in seat_of.items() if trace.requests[req_id].steps[-1] >= step.step}
        for req_id in step.tokens:
            taken = set(seat_of.values())
            seat_of.setdefault(req_id, next((s for s in range(seats) if s not in taken), seats))
        busy = {seat_of[req_id]: req_id for req_id in step.tokens}
        for seat in range(seats):
            box = Rectangle(
                (column + 0.04, seat + 0.1),
                0.92,
                0.8,
                facecolor="white",
                edgecolor=palette.WAITING,
                hatch="////",
                linewidth=0.4,
            )
            if seat in busy:
                colour = palette.owner_colour(owners[busy[seat]])
                box = Rectangle((column + 0.04, seat + 0.1), 0.92, 0.8, color=colour, linewidth=0)
                if trace.requests[busy[seat]].steps[0] == step.step:
                    ink = palette.ink_on(colour)
                    ax.text(
                        column + 0.15, seat + 0.5, label(busy[seat]), va="center", fontsize=palette.SMALL, color=ink
                    )
            ax.add_patch(box)
    ax.set_xlim(-0.1, len(steps) + 0.1)
    ax.set_ylim(seats + 0.1, -0.05)
    ax.set_yticks([seat + 0.5 for seat in range(seats)], [f"seat {seat}" for seat in range(seats)])
    ax.set_xlabel("step", fontsize=palette.NORMAL)
    palette.bare(ax)
    waited = sum(step.num_waiting for step in steps)
    palette.title(
        ax,
        "Seats that computed, and seats that stood empty",
        f"{empty_share(trace):.0%} of the seats stood empty (hatched), while requests waited {waited} steps in all",
    )
    return figure
