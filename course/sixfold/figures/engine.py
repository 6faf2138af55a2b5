"""The engine as a picture: its components, and one turn of its loop.

Owns the layout. Reads a running ``EngineCore`` (the names are those of the objects in it) and a trace of it.

vLLM: ``v1/engine/core.py`` (``EngineCore.step``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from sixfold.figures.names import label
from stage1.trace import palette
from stage1.trace.reader import Trace

WIDTH, HEIGHT = 2.3, 0.8
# what it is, where to find it from the core, its place, and the field of Parts that makes it
COMPONENTS: tuple[tuple[str, str, float, float, str], ...] = (
    ("engine core", "", 0.0, 1.5, "core"),
    ("scheduler", "scheduler", 3.2, 2.6, "scheduler"),
    ("lifecycle", "scheduler._lifecycle", 6.4, 3.4, ""),
    ("KV manager", "scheduler._kv._manager", 6.4, 2.3, "kv_manager"),
    ("executor", "executor", 3.2, 0.4, "executor"),
    ("runner", "executor._runner", 6.4, 0.4, "runner"),
    ("model", "executor._runner._model", 9.6, 1.9, "ops"),
    ("attention", "executor._runner._attention", 9.6, 0.9, "attention"),
    ("sampler", "executor._runner._sampler", 9.6, -0.1, "sampler"),
)
ARROWS = ((0, 1), (1, 2), (1, 3), (0, 4), (4, 5), (5, 6), (5, 7), (5, 8))


def draw_components(core: Any, owners: Mapping[str, str] | None = None) -> Figure:
    """What is inside ``core``, with the class of each object; parts that ``owners`` calls "yours" are orange."""
    owners = owners or {}
    figure = palette.new_figure(10.5, 4.0)
    ax = figure.subplots()
    for first, second in ARROWS:
        _arrow(ax, COMPONENTS[first][2:4], COMPONENTS[second][2:4])
    for name, path, x, y, part in COMPONENTS:
        found = core
        for step in filter(None, path.split(".")):
            found = getattr(found, step)
        mine = owners.get(part) == "yours"
        _box(ax, x, y, name, type(found).__name__, palette.MARK if mine else palette.SINGLE)
    ax.text(3.2, 4.4, "decides: numbers only, no tensors", fontsize=palette.NORMAL, color=palette.PALE)
    ax.text(3.2, -0.55, "computes: tensors on one device", fontsize=palette.NORMAL, color=palette.PALE)
    ax.set_xlim(-0.2, 12.1)
    ax.set_ylim(-0.8, 4.7)
    ax.axis("off")
    ax.set_title("What an engine is made of", loc="left", fontsize=palette.TITLE, fontweight="bold")
    return figure


def draw_loop(trace: Trace, step: int) -> Figure:
    """One turn: schedule, submit, update, with what really went from one to the next in ``step``."""
    record = trace.steps[step]
    plan = ", ".join(f"{label(r)}: {n}" for r, (_, n) in record.tokens.items())
    tokens = ", ".join(f"{label(r)}: {ids}" for r, ids in record.sampled.items())
    ended = [life.req_id for life in trace.requests.values() if life.steps and life.steps[-1] == step and life.reason]
    done = "" if record.t_done is None else f"{1000 * (record.t_done - record.t):.1f} ms later"
    boxes = [
        ("schedule", f"{record.num_running} running,\n{record.num_waiting} waiting"),
        ("submit", f"{palette.count(record.num_tokens, 'token')} through\nmodel and sampler"),
        ("update", "ended: " + (", ".join(map(label, ended)) or "none") + "\nblocks given back" * bool(ended)),
    ]
    figure = palette.new_figure(10.5, 3.1)
    ax = figure.subplots()
    for i, (name, text) in enumerate(boxes):
        _box(ax, 4.2 * i, 1.0, name, text, palette.SINGLE)
    _arrow(ax, (0, 1.0), (4.2, 1.0))
    _arrow(ax, (4.2, 1.0), (8.4, 1.0))
    for x, head, text in ((3.25, "tokens to compute", plan), (7.45, f"new tokens {done}", tokens)):
        ax.text(x, 1.95, head, ha="center", fontsize=palette.SMALL, color=palette.PALE)
        ax.text(x, 0.75, _wrap(text), ha="center", va="top", fontsize=palette.SMALL, color=palette.INK)
    ax.annotate("", (1.1, 0.95), (9.6, 0.95), arrowprops={"arrowstyle": "->", "color": palette.PALE,
                "connectionstyle": "arc3,rad=-0.28"})  # fmt: skip
    ax.text(5.3, -0.75, "next step", ha="center", fontsize=palette.SMALL, color=palette.PALE)
    ax.set_xlim(-0.2, 11.0)
    ax.set_ylim(-1.0, 2.3)
    ax.axis("off")
    ax.set_title(f"The loop in step {step}", loc="left", fontsize=palette.TITLE, fontweight="bold")
    return figure


def _wrap(text: str, most: int = 26) -> str:
    """Short lines; what does not fit on two is cut."""
    lines = [text[:most], text[most : 2 * most]]
    return "\n".join(filter(None, lines)) + ("…" if len(text) > 2 * most else "")


def _box(ax: Axes, x: float, y: float, name: str, detail: str, colour: str) -> None:
    box = FancyBboxPatch((x, y), WIDTH, HEIGHT, boxstyle="round,pad=0.02,rounding_size=0.08", facecolor=colour,
                         edgecolor=palette.INK, linewidth=0.8)  # fmt: skip
    ax.add_patch(box)
    centre = x + WIDTH / 2
    ax.text(centre, y + 0.62, name, ha="center", va="center", fontsize=palette.NORMAL, fontweight="bold")
    ax.text(centre, y + 0.27, detail, ha="center", va="center", fontsize=palette.SMALL, linespacing=1.0)


def _arrow(ax: Axes, begin: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate(
        "",
        (end[0], end[1] + HEIGHT / 2),
        (begin[0] + WIDTH, begin[1] + HEIGHT / 2),
        arrowprops={"arrowstyle": "->", "color": palette.PALE, "shrinkA": 2, "shrinkB": 2},
    )
