"""Grammars in pictures: the automaton of a pattern, which tokens may follow where, and what masks cost in a run.

Owns the layout, and the words on an edge. Reads a ``Machine`` at its border, and masks as they are handed in.

vLLM: none; its grammar backends show nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from stage1.trace import palette
from stage3.grammar.alphabet import DEAD, Alphabet, class_of
from stage3.grammar.fsm import Machine, may_end

MOST_STATES = 12
RADIUS = 0.22
ROW = 1.25  # from a state to the one below it; columns are 1 apart
OTHERS = "…"  # characters that are not ASCII


@dataclass(frozen=True)
class Graph:
    """An automaton as far as it can be walked: states from 0, the start."""

    depths: list[int]  # of each state: characters of the shortest text that leads to it
    ends: frozenset[int]  # states in which the text may end
    edges: dict[tuple[int, int], str]  # (from, to) → the characters that lead there, as in a class of a pattern


def graph_of(machine: Machine, most: int = MOST_STATES) -> Graph:
    """Every state of ``machine``, nearest first.

    Raises:
        ValueError: it has more than ``most`` states.
    """
    start = machine.begin(machine.start)
    found, depths = [start], [0]
    moves: dict[tuple[int, int], list[int]] = {}
    for i, state in enumerate(found):  # grows while it is walked
        for character_class in range(machine.alphabet.num_classes):
            target = machine.step(state, character_class)
            if target == DEAD:
                continue
            if target not in found:
                found.append(target)
                depths.append(depths[i] + 1)
            moves.setdefault((i, found.index(target)), []).append(character_class)
        if len(found) > most:
            raise ValueError(f"the pattern has more than {most} states, too many for a picture: take a shorter one")
    ends = frozenset(i for i, state in enumerate(found) if may_end(machine.places(state)))
    return Graph(depths, ends, {pair: _characters(machine.alphabet, classes) for pair, classes in moves.items()})


def draw_machine(machine: Machine, title: str) -> Figure:
    """Its states from left to right, a double ring where the text may end, and on each edge what is read."""
    graph = graph_of(machine)
    places = _places(graph.depths)
    height = max(abs(y) for _, y in places)
    figure = palette.new_figure(max(1.5 + 1.25 * max(graph.depths), 5.5), 2.3 + 2 * height)
    ax = figure.subplots()
    for (source, target), label in graph.edges.items():
        _edge(ax, places[source], places[target], label)
    for state, place in enumerate(places):
        _state(ax, place, state, state in graph.ends)
    ax.annotate("", (places[0][0] - RADIUS, 0), (places[0][0] - 0.6, 0), arrowprops={"arrowstyle": "-|>"})
    ax.set_xlim(-0.7, max(graph.depths) + 0.5)
    ax.set_ylim(-height - 0.75, height + 0.75)
    ax.set_aspect("equal")
    _empty_axes(ax)
    palette.title(ax, title, "a circle a state, an edge a character · double ring: the text may end here")
    return figure


def draw_masks(
    tokens: Sequence[bytes],
    rows: Mapping[str, npt.NDArray[np.bool_]],
    title: str = "What may follow",
    chosen: Mapping[str, int] | None = None,
) -> Figure:
    """A row a place in the output, a column a token; filled where it is allowed.

    Args:
        tokens: the text of each token, ``b""`` for none.
        rows: the text so far → [vocab] what may follow.
        title: over the picture.
        chosen: the text so far → the token that was drawn there: it gets a frame.
    """
    figure = palette.new_figure(1.8 + 0.42 * len(tokens), 1.2 + 0.36 * len(rows))
    ax = figure.subplots()
    for y, (text, mask) in enumerate(rows.items()):
        for x, allowed in enumerate(mask.tolist()):
            colour = palette.PROMPT if allowed else palette.GRID
            ax.add_patch(Rectangle((x + 0.06, y + 0.08), 0.88, 0.84, facecolor=colour, edgecolor="none"))
        if chosen and text in chosen:
            frame = Rectangle((chosen[text] + 0.06, y + 0.08), 0.88, 0.84, fill=False, edgecolor=palette.MARK)
            frame.set_linewidth(2.5)
            ax.add_patch(frame)
    ax.set_xlim(0, len(tokens))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([x + 0.5 for x in range(len(tokens))], [token_label(token) for token in tokens], rotation=60)
    ax.set_yticks(
        [y + 0.5 for y in range(len(rows))], [f"behind “{text}”" if text else "at the start" for text in rows]
    )
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(length=0)
    detail = " · ".join(f"{int(mask.sum())} of {len(tokens)}" for mask in rows.values())
    palette.title(ax, title, f"tokens allowed, row by row: {detail}")
    return figure


def token_label(token: bytes) -> str:
    """A token as a picture shows it: its text, its bytes where they are no text, ∅ without any."""
    if not token:
        return "∅"
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return token.hex(" ").upper()
    return text.replace(" ", "␣").replace("\n", "⏎")


def _characters(alphabet: Alphabet, classes: Collection[int]) -> str:
    """The characters of ``classes``: ASCII in ranges, and whether there are others."""
    root = alphabet.decoder[0]
    codes = [code for code in range(128) if (entry := int(root[code])) < DEAD and class_of(entry) in classes]
    others = any(not alphabet.below[entry].isdisjoint(classes) for entry in root[128:].tolist() if entry > 0)
    return " ".join([*_ranges(codes), *[OTHERS] * others])


def _ranges(codes: Iterable[int]) -> list[str]:
    """``[48, 49, 50, 97]`` → ``["0-2", "a"]``."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return [_printed(low) if low == high else f"{_printed(low)}-{_printed(high)}" for low, high in runs]


def _printed(code: int) -> str:
    text = chr(code)
    return "␣" if text == " " else text if text.isprintable() else f"\\x{code:02x}"


def _places(depths: Sequence[int]) -> list[tuple[float, float]]:
    """(x, y) of each state: a column a depth, its states spread around the middle."""
    seen: dict[int, int] = {}
    places = []
    for depth in depths:
        seen[depth] = seen.get(depth, -1) + 1
        places.append((float(depth), ROW * ((depths.count(depth) - 1) / 2 - seen[depth])))
    return places


def _state(ax: Axes, place: tuple[float, float], number: int, is_end: bool) -> None:
    colour = palette.owner_colour(2) if is_end else palette.lighter(palette.PROMPT, 0.75)
    ax.add_patch(Circle(place, RADIUS, facecolor=colour, edgecolor=palette.INK, linewidth=1, zorder=3))
    if is_end:
        ax.add_patch(Circle(place, RADIUS - 0.05, fill=False, edgecolor="white", linewidth=1.2, zorder=4))
    ink = palette.ink_on(colour)
    ax.text(*place, str(number), ha="center", va="center", fontsize=palette.NORMAL, color=ink, zorder=5)


def _edge(ax: Axes, source: tuple[float, float], target: tuple[float, float], label: str) -> None:
    """Straight to the next column, in an arc elsewhere; a loop stands on its state, or hangs below it."""
    x, y = source
    if source == target:
        side = -1 if y < 0 else 1
        foot = y + side * 0.9 * RADIUS
        _arrow(ax, (x - 0.1 * side, foot), (x + 0.1 * side, foot), bend=-2.2, gap=0)
        middle = (x, y + side * (RADIUS + 0.3))
    else:
        dx, dy = target[0] - x, target[1] - y
        bend = 0.0 if dx == 1 else 0.35
        _arrow(ax, source, target, bend, gap=17)
        # The arc passes the middle of its chord at half the bend times the chord, to the right of its way.
        middle = (x + dx / 2 + bend / 2 * dy, y + dy / 2 - bend / 2 * dx)
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    ax.text(*middle, label, ha="center", va="center", fontsize=palette.TITLE, color=palette.INK, bbox=box, zorder=2)


def _arrow(ax: Axes, source: tuple[float, float], target: tuple[float, float], bend: float, gap: float) -> None:
    arrow = FancyArrowPatch(
        source, target, connectionstyle=f"arc3,rad={bend}", arrowstyle="-|>", mutation_scale=10, shrinkA=gap,
        shrinkB=gap, color=palette.PALE, zorder=1,
    )  # fmt: skip
    ax.add_patch(arrow)


def _empty_axes(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
