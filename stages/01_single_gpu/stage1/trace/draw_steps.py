"""The step timeline: a lane a request, a cell a step, the number of its tokens in the cell.

Owns the layout. Reads a ``Trace`` only. The x axis counts steps, not seconds: what the scheduler decided is visible
whatever each step cost.
"""

from __future__ import annotations

from bisect import bisect_left

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from stage1.trace import palette
from stage1.trace.reader import RequestLife, Step, Trace

_LANE = 0.72  # height of a cell, in lanes
_MOST_NUMBERS = 60  # steps, up to which the cells are wide enough for their numbers


def draw_steps(trace: Trace, first: int | None = None, last: int | None = None) -> Figure:
    """Which request computed how many tokens in which step, below how many ran and waited.

    Args:
        trace: the run.
        first, last: step numbers, both included; the whole run by default.

    Raises:
        ValueError: no step lies in that range.
    """
    steps = [s for s in trace.steps.values() if (first is None or s.step >= first) and (last is None or s.step <= last)]
    if not steps:
        raise ValueError(f"no step between {first} and {last}; the trace has {len(trace.steps):,} steps")
    lives = [life for life in trace.requests.values() if _is_seen(life, steps)]
    width = min(4.0 + 0.3 * len(steps), 16.0)
    lane_height = 0.3 if len(lives) <= 24 else 0.19
    height = lane_height * max(len(lives), 2)
    figure = palette.new_figure(max(width, 7.0), height + 2.3)
    queue, lanes = figure.subplots(2, 1, sharex=True, height_ratios=[0.75, height])
    _draw_queue(queue, steps, trace.start.max_num_seqs)
    _draw_lanes(lanes, lives, steps)
    handles = [
        Patch(color=palette.PROMPT, label="several tokens (prompt)"),
        Patch(color=palette.SINGLE, label="one token"),
        Patch(color=palette.WAITING, label="waits"),
    ]
    if any(life.preempted for life in lives):
        handles.append(Patch(color=palette.LOST, label="waits after a preemption"))
    figure.legend(
        handles=handles, fontsize=palette.SMALL, frameon=False, ncols=4, loc="outside lower left", handlelength=1.2
    )
    busy = sum(step.num_tokens for step in steps)
    palette.title(
        queue,
        "Steps of the engine",
        f"{trace.start.model} · {palette.count(len(steps), 'step')} · {palette.count(len(lives), 'request')} · "
        f"{palette.count(busy, 'token')} computed",
    )
    return figure


def _is_seen(life: RequestLife, steps: list[Step]) -> bool:
    """Whether ``life`` overlaps the drawn steps."""
    return life.added <= steps[-1].t and (life.finished is None or life.finished >= steps[0].t)


def _draw_queue(ax: Axes, steps: list[Step], seats: int) -> None:
    """How many requests ran and waited, stacked; and how many may run, where that is in sight."""
    edges = [steps[0].step - 0.5, *(step.step + 0.5 for step in steps)]
    running = [step.num_running for step in steps]
    total = [step.num_running + step.num_waiting for step in steps]
    ax.stairs(total, edges, baseline=running, fill=True, color=palette.WAITING, label="waiting")
    ax.stairs(running, edges, fill=True, color=palette.PROMPT, alpha=0.55, label="running")
    most = max(total)
    if seats <= 1.5 * most:
        most = max(most, seats)
        ax.axhline(seats, color=palette.INK, linewidth=1, linestyle=(0, (4, 3)), label=f"seats ({seats})")
    ax.set_ylim(0, most * 1.1 + 0.1)
    ax.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    ax.set_ylabel("requests", fontsize=palette.SMALL, color=palette.INK)
    palette.bare(ax)
    ax.tick_params(axis="x", length=0, labelbottom=False)
    ax.legend(
        fontsize=palette.SMALL, frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0
    )


def _draw_lanes(ax: Axes, lives: list[RequestLife], steps: list[Step]) -> None:
    size = palette.SMALL if len(lives) <= 24 else palette.SMALL - 2
    times = [step.t for step in steps]
    for lane, life in enumerate(lives):
        _draw_waiting(ax, lane, life, steps, times)
        _draw_cells(ax, lane, life, steps, size)
    ax.set_xlim(steps[0].step - 0.6, steps[-1].step + 0.6 + 0.06 * len(steps))  # room for the last reason
    ax.set_ylim(max(len(lives), 1) - 0.4, -0.6)
    ax.set_yticks(range(len(lives)), [palette.short(life.req_id) for life in lives], fontsize=size)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("step", fontsize=palette.NORMAL, color=palette.INK)
    palette.bare(ax)
    ax.tick_params(axis="y", length=0, labelsize=size)
    ax.set_axisbelow(True)
    ax.grid(axis="y", color=palette.GRID, linewidth=0.6)


def _draw_waiting(ax: Axes, lane: int, life: RequestLife, steps: list[Step], times: list[float]) -> None:
    """Thin lines from an arrival or a preemption to the next step that computes the request."""
    for since, colour in [(life.added, palette.WAITING), *((t, palette.LOST) for t in life.preempted)]:
        begin = bisect_left(times, since)
        end = next((i for i in range(begin, len(steps)) if life.req_id in steps[i].tokens), None)
        if end is None:
            ended = life.finished if life.finished is not None else times[-1] + 1
            end = bisect_left(times, ended)
        if end > begin:
            left, right = steps[begin].step - 0.5, steps[end - 1].step + 0.5
            ax.hlines(lane, left, right, color=colour, linewidth=2.5, gid=f"waits {life.req_id}")


def _draw_cells(ax: Axes, lane: int, life: RequestLife, steps: list[Step], size: float) -> None:
    """One collection a kind. Where numbers fit, a step is a cell of its own; where not, its neighbours join it."""
    mine = [(step.step, step.tokens[life.req_id][1]) for step in steps if life.req_id in step.tokens]
    numbered = len(steps) <= _MOST_NUMBERS
    for colour, name, cells in (
        (palette.PROMPT, "several", [step for step, n in mine if n > 1]),
        (palette.SINGLE, "one", [step for step, n in mine if n == 1]),
    ):
        if cells:
            spans = [(step - 0.47, 0.94) for step in cells] if numbered else _runs(cells)
            ax.broken_barh(spans, (lane - _LANE / 2, _LANE), facecolor=colour, gid=f"{name} {life.req_id}")
    if numbered:
        for step, n in mine:
            colour = palette.PROMPT if n > 1 else palette.SINGLE
            label = f"{n}" if n < 1000 else f"{n / 1000:.0f}k"
            font = size - 1.5 if n < 100 else size - 2.5
            ax.text(step, lane, label, ha="center", va="center", fontsize=font, color=palette.ink_on(colour))
    if mine and life.reason is not None and life.steps[-1] <= steps[-1].step:
        ax.text(mine[-1][0] + 0.65, lane, life.reason, va="center", fontsize=size - 0.5, color=palette.PALE)


def _runs(cells: list[int]) -> list[tuple[float, float]]:
    """Step numbers as (left, width) of their unbroken runs: [4, 5, 6, 9] → (3.5, 3), (8.5, 1)."""
    runs: list[tuple[float, float]] = []
    for step in cells:
        if runs and runs[-1][0] + runs[-1][1] == step - 0.5:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((step - 0.5, 1))
    return runs
