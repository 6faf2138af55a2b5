"""A request's life: from arrival to end on one time axis, with the latencies that its user feels.

Owns the layout. Reads a ``Trace`` only. TTFT is what passes before the first token, ITL what passes between one arrival
of tokens and the next.
"""

from __future__ import annotations

from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from stage1.trace import palette
from stage1.trace.reader import RequestLife, Trace


def draw_life(trace: Trace, req_id: str) -> Figure:
    """Waiting, prompt and tokens of ``req_id``, TTFT marked, and every inter-token latency below.

    Raises:
        ValueError: the trace has no such request.
    """
    life = trace.requests.get(req_id)
    if life is None:
        some = ", ".join(list(trace.requests)[:5]) or "none"
        raise ValueError(f"no request {req_id!r} in the trace; it has {len(trace.requests)} requests: {some}")
    figure = palette.new_figure(9.0, 4.4)
    bar, gaps = figure.subplots(2, 1, sharex=True, height_ratios=[1.0, 1.15])
    end = life.finished if life.finished is not None else trace.end
    unit = _Unit.of(end - life.added)
    _draw_bar(bar, trace, life, end, unit)
    _draw_gaps(gaps, life, unit)
    gaps.set_xlim(-0.02 * unit.scale * (end - life.added), 1.12 * unit.scale * max(end - life.added, 1e-9))
    gaps.set_xlabel(f"{unit.name} since the request arrived", fontsize=palette.NORMAL, color=palette.INK)
    how = f"ended: {life.reason}" if life.reason is not None else "not ended"
    ttft = "" if life.ttft is None else f" · TTFT {unit.show(life.ttft)}"
    itl = f" · median ITL {unit.show(median(life.itl))}" if life.itl else ""
    palette.title(
        bar,
        f"Life of request {palette.short(req_id, 40)}",
        f"{palette.count(life.num_prompt_tokens, 'prompt token')} · "
        f"{palette.count(len(life.token_ids), 'output token')}{ttft}{itl} · {how}",
    )
    return figure


class _Unit:
    """Seconds or milliseconds, whichever gives readable numbers."""

    def __init__(self, name: str, scale: float) -> None:
        self.name = name
        self.scale = scale  # units a second

    @classmethod
    def of(cls, seconds: float) -> _Unit:
        """The unit for a picture that spans ``seconds``."""
        return cls("seconds", 1.0) if seconds >= 10 else cls("milliseconds", 1000.0)

    def show(self, seconds: float) -> str:
        """``seconds`` with three digits and a unit that fits."""
        return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _draw_bar(ax: Axes, trace: Trace, life: RequestLife, end: float, unit: _Unit) -> None:
    """Phases as coloured spans, a tick for each arrival, and the bracket of the TTFT above."""

    def span(begin: float, until: float, colour: str, name: str) -> None:
        if until > begin:
            x = unit.scale * (begin - life.added)
            ax.barh(0, unit.scale * (until - begin), left=x, height=0.6, color=colour, gid=name)

    started = life.first_scheduled if life.first_scheduled is not None else end
    first = life.first_token if life.first_token is not None else end
    span(life.added, started, palette.WAITING, "waits")
    span(started, first, palette.PROMPT, "prompt")
    span(first, end, palette.SINGLE, "tokens")
    for lost in life.preempted:
        span(lost, _resumed(trace, life, lost, end), palette.LOST, "preempted")
    ticks = [unit.scale * (t - life.added) for t in life.arrivals]
    ax.vlines(ticks, -0.3, 0.3, color=palette.INK, linewidth=0.8 if len(ticks) <= 200 else 0.3, gid="arrivals")
    if life.ttft is not None:
        _bracket(ax, 0, unit.scale * life.ttft, 0.45, f"TTFT {unit.show(life.ttft)}")
    if life.finished is not None:
        x = unit.scale * (life.finished - life.added)
        ax.plot([x], [0], marker="D", markersize=6, color=palette.INK, gid="end")
        ax.annotate(f"{life.reason}", (x, 0), (8, 0), textcoords="offset points", va="center", fontsize=palette.NORMAL)
    ax.set_ylim(-0.45, 1.0)
    ax.set_yticks([])
    palette.bare(ax)
    ax.tick_params(axis="x", length=0, labelbottom=False)
    handles = [
        Patch(color=palette.WAITING, label="waits"),
        Patch(color=palette.PROMPT, label="computes its prompt"),
        Patch(color=palette.SINGLE, label="one token a step; a line marks each arrival"),
    ]
    if life.preempted:
        handles.append(Patch(color=palette.LOST, label="preempted"))
    ax.legend(handles=handles, fontsize=palette.SMALL, frameon=False, ncols=4, loc="upper right", handlelength=1.2)


def _resumed(trace: Trace, life: RequestLife, lost: float, end: float) -> float:
    """When ``life`` was scheduled again after ``lost``."""
    return next((trace.steps[step].t for step in life.steps if trace.steps[step].t > lost), end)


def _bracket(ax: Axes, left: float, right: float, y: float, text: str) -> None:
    ax.annotate(
        "",
        (left, y),
        (right, y),
        arrowprops={"arrowstyle": "<->", "color": palette.MARK, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0},
    )
    ax.annotate(text, (left, y), (2, 4), textcoords="offset points", fontsize=palette.NORMAL, color=palette.INK)


def _draw_gaps(ax: Axes, life: RequestLife, unit: _Unit) -> None:
    """A dot for each inter-token latency at the time of its arrival, and the median."""
    palette.bare(ax)
    ax.set_ylabel("ITL, milliseconds", fontsize=palette.NORMAL, color=palette.INK)
    ax.grid(axis="y", color=palette.GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    if not life.itl:
        ax.text(0.5, 0.5, "fewer than two arrivals: no ITL", transform=ax.transAxes, ha="center", color=palette.PALE)
        ax.set_yticks([])
        return
    x = [unit.scale * (t - life.added) for t in life.arrivals[1:]]
    y = [1000 * gap for gap in life.itl]
    ax.vlines(x, 0, y, color=palette.SINGLE, linewidth=1.0)
    ax.plot(x, y, "o", markersize=3.5 if len(x) <= 100 else 2, color=palette.PROMPT, gid="itl")
    middle = median(y)
    ax.axhline(middle, color=palette.MARK, linewidth=1.4)
    ax.annotate(f"median {middle:.3g} ms", (1, middle), (-2, 3), xycoords=("axes fraction", "data"),
                textcoords="offset points", ha="right", fontsize=palette.SMALL, color=palette.INK)  # fmt: skip
    ax.set_ylim(0, max(y) * 1.15)
