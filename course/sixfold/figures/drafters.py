"""Drafters in pictures: what looks at what, how many of the drafts stay, and where that pays.

Owns the layout, and the arithmetic of what speculation saves, a calculation and no measurement. Reads counters of an
engine; does not know models.

    a step without drafts     max(1, B / balance)                 in units of "all weights, read once"
    a step with k drafts      max(1, B * (1 + k) / balance)       for B requests; balance is the machine's
    its guesses               draft_cost * max(1, B / balance)    draft_cost: weights that they read, over the model's

vLLM: none; ``v1/spec_decode/metrics.py`` logs the counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Patch, Rectangle

from stage1.records import StepStats
from stage1.trace import palette

Place = tuple[int, int]  # column = position, row from below
TOKEN, STATE, DRAFTER, DRAFT = "a known token", "a state of the model", "what guesses", "a guess"
COLOURS = {TOKEN: "white", STATE: palette.SINGLE, DRAFTER: palette.PROMPT, DRAFT: palette.MARK}
WORDS = ("sat", "on", "the", "mat", "and", "slept")  # three known tokens, three guesses
NUM_KNOWN = 3
INPUTS, STATES, LAYER, OUTPUTS = range(4)  # rows


@dataclass(frozen=True)
class Scene:
    """Boxes with a text and a kind, and what reads what."""

    title: str
    detail: str
    boxes: dict[Place, tuple[str, str]]
    arrows: list[tuple[Place, Place]]  # from what is read to what reads it


def draft_model_scene() -> Scene:
    """A small model reads every token, its own guesses too; the large model is not asked."""
    boxes = {(c, INPUTS): _word(c) for c in range(5)} | {(c, LAYER): ("model", DRAFTER) for c in range(5)}
    arrows = [((c, INPUTS), (c, LAYER)) for c in range(5)] + [((c, LAYER), (c + 1, LAYER)) for c in range(4)]
    for c in (2, 3, 4):
        boxes[c, OUTPUTS] = _word(c + 1)
        arrows.append(((c, LAYER), (c, OUTPUTS)))
    return Scene("A draft model", "reads the tokens, a pass a guess", boxes, arrows)


def medusa_scene() -> Scene:
    """All heads read one state, and none of them the newest token."""
    boxes = {(c, INPUTS): _word(c) for c in range(NUM_KNOWN)}
    boxes |= {(c, STATES): ("state", STATE) for c in range(2)}
    arrows = [((c, INPUTS), (c, STATES)) for c in range(2)] + [((0, STATES), (1, STATES))]
    for head in range(3):
        boxes[2 + head, LAYER] = (f"head {head}", DRAFTER)
        boxes[2 + head, OUTPUTS] = _word(NUM_KNOWN + head)
        arrows += [((1, STATES), (2 + head, LAYER)), ((2 + head, LAYER), (2 + head, OUTPUTS))]
    return Scene("Medusa", "reads one state, all guesses at once", boxes, arrows)


def eagle_scene() -> Scene:
    """A layer reads the state of a position and the token behind it; then its own state and its own guess."""
    boxes = {(c, INPUTS): _word(c) for c in range(5)} | {(c, STATES): ("state", STATE) for c in range(2)}
    boxes |= {(c, LAYER): ("layer", DRAFTER) for c in range(4)}
    arrows = [((c, INPUTS), (c, STATES)) for c in range(2)] + [((0, STATES), (1, STATES))]
    arrows += [((c, STATES), (c, LAYER)) for c in range(2)] + [((c + 1, INPUTS), (c, LAYER)) for c in range(4)]
    arrows += [((c, LAYER), (c + 1, LAYER)) for c in range(3)]
    for c in (1, 2, 3):
        boxes[c, OUTPUTS] = _word(c + 2)
        arrows.append(((c, LAYER), (c, OUTPUTS)))
    return Scene("EAGLE", "reads a state and the next token, a pass a guess", boxes, arrows)


def draw_drafters() -> Figure:
    """A panel a drafter: inputs below, guesses above, an arrow from what is read to what reads it."""
    figure = palette.new_figure(11, 3.3)
    scenes = (draft_model_scene(), medusa_scene(), eagle_scene())
    for ax, scene in zip(figure.subplots(1, len(scenes)), scenes, strict=True):
        for source, target in scene.arrows:
            _arrow(ax, source, target)
        for place, (text, kind) in scene.boxes.items():
            _box(ax, place, text, COLOURS[kind])
        ax.set_xlim(-0.6, 4.6)
        ax.set_ylim(-0.5, 3.5)
        ax.set_xticks([])
        ax.set_yticks([])
        palette.bare(ax)
        ax.spines["bottom"].set_visible(False)
        palette.title(ax, scene.title, scene.detail)
    handles = [Patch(facecolor=colour, edgecolor=palette.PALE, label=kind) for kind, colour in COLOURS.items()]
    figure.legend(handles=handles, fontsize=palette.SMALL, frameon=False, ncols=4, loc="outside lower left")
    return figure


def accepted_shares(before: StepStats, after: StepStats) -> list[float]:
    """Of the verifications between two readings of the counters: the share in which the draft at each place stayed.

    One more than their sum is the acceptance length of these steps.

    Raises:
        ValueError: nothing was verified.
    """
    count = after.verifications - before.verifications
    if count < 1:
        raise ValueError("no drafts were verified between the two readings: serve a request that gets some")
    old = before.accepted_per_position or [0] * len(after.accepted_per_position)
    return [(new - known) / count for new, known in zip(after.accepted_per_position, old, strict=True)]


def draw_acceptance(shares: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure:
    """A panel a drafter, a group a kind of text, a bar a draft: in which share of the verifications it stayed."""
    figure = palette.new_figure(10, 2.8)
    panels = figure.subplots(1, len(shares), sharey=True, squeeze=False)[0]
    for ax, (name, kinds) in zip(panels, shares.items(), strict=True):
        most = max(map(len, kinds.values()))
        width = 0.8 / most
        for number in range(most):
            places = [kind + (number - (most - 1) / 2) * width for kind in range(len(kinds))]
            heights = [row[number] if number < len(row) else 0.0 for row in kinds.values()]
            ax.bar(places, heights, width=0.92 * width, color=palette.lighter(palette.PROMPT, 0.3 * number),
                   label=f"draft {number + 1}")  # fmt: skip
        ax.set_xticks(range(len(kinds)), list(kinds))
        ax.set_xlim(-0.5, max(map(len, shares.values())) - 0.5)
        ax.set_ylim(0, 1)
        palette.bare(ax)
        lengths = " · ".join(f"{1 + sum(row):.2f}" for row in kinds.values())
        palette.title(ax, name, f"tokens a step: {lengths}")
    panels[0].set_ylabel("share that stayed", fontsize=palette.SMALL, color=palette.INK)
    panels[-1].legend(fontsize=palette.SMALL, frameon=False)
    return figure


@dataclass(frozen=True)
class Payoff:
    """What one way of drafting brings and costs."""

    length: float  # acceptance length: tokens a request gets from a step
    num_drafts: int
    draft_cost: float = 0.0  # weights that the guesses of a step read, over the model's

    def speed_up(self, batch: int, balance: float) -> float:
        """Tokens in a given time with drafts, over those without; calculated, see the module."""
        plain = max(1.0, batch / balance)
        with_drafts = max(1.0, batch * (1 + self.num_drafts) / balance) + self.draft_cost * plain
        return self.length * plain / with_drafts

    def break_even(self, balance: float) -> int | None:
        """Most requests at a time for which drafts do not make it slower; ``None`` where they do for a single one."""
        batch = 0
        while batch < 4 * balance and self.speed_up(batch + 1, balance) >= 1:
            batch += 1
        return batch or None


def draw_payoffs(payoffs: Mapping[str, Payoff], balance: float, most: int = 512) -> Figure:
    """A line a drafter: the calculated speed-up over the requests that decode at the same time, up to ``most``."""
    figure = palette.new_figure(8.5, 3.2)
    ax = figure.subplots()
    batches = range(1, most + 1)
    for index, (name, payoff) in enumerate(payoffs.items()):
        label = f"{name}: length {payoff.length:.2f}, guesses cost {payoff.draft_cost:.2f}"
        ax.plot(batches, [payoff.speed_up(b, balance) for b in batches], color=palette.owner_colour(index), label=label)
    ax.axhline(1, color=palette.PALE, linewidth=0.8, linestyle=":")
    ax.set_xscale("log", base=2)
    ax.set_xticks([2**n for n in range(most.bit_length())], [str(2**n) for n in range(most.bit_length())])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("requests that decode at the same time", fontsize=palette.NORMAL, color=palette.INK)
    ax.set_ylabel("speed-up", fontsize=palette.SMALL, color=palette.INK)
    palette.bare(ax)
    ax.legend(fontsize=palette.SMALL, frameon=False)
    palette.title(ax, "When drafts pay", f"calculated, not measured: {balance:g} tokens take as long as all weights")
    return figure


# --- below: boxes and arrows -----------------------------------------------------------------------------


def _word(number: int) -> tuple[str, str]:
    return WORDS[number], TOKEN if number < NUM_KNOWN else DRAFT


def _box(ax: Axes, place: Place, text: str, colour: str) -> None:
    x, y = place
    ax.add_patch(Rectangle((x - 0.42, y - 0.25), 0.84, 0.5, facecolor=colour, edgecolor=palette.PALE, zorder=2))
    ink = palette.INK if colour == "white" else palette.ink_on(colour)
    ax.text(x, y, text, ha="center", va="center", fontsize=palette.SMALL, color=ink, zorder=3)


def _arrow(ax: Axes, source: Place, target: Place) -> None:
    (x, y), (to_x, to_y) = source, target
    begin, end = ((x + 0.42, y), (to_x - 0.42, to_y)) if y == to_y else ((x, y + 0.25), (to_x, to_y - 0.25))
    ax.add_patch(
        FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=8, color=palette.PALE, linewidth=0.9, zorder=1)
    )
