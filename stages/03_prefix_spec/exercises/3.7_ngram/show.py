"""The learner's drafts for four short texts: what matches, and what is guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from stage1.trace import palette
from stage3.spec.ngram import NgramRules

TEXTS = ("a cat sat; a cat", "to be or not to b", "no one saw none; no", "abcdefghij")
RULES = NgramRules(num_speculative_tokens=4, prompt_lookup_max=4, prompt_lookup_min=2)


def show(subject: Callable[[Sequence[int], NgramRules, int], list[int]]) -> Figure:
    """A row a text, a box a letter; behind it, filled, the subject's drafts."""
    figure = palette.new_figure(9.5, 2.9)
    ax = figure.subplots()
    for row, text in enumerate(TEXTS):
        drafts = subject(list(text.encode()), RULES, len(text))
        for place, letter in enumerate(text):
            _box(ax, place, row, letter, "white")
        for place, token in enumerate(drafts):
            _box(ax, len(text) + place, row, chr(token), palette.PROMPT)
    ax.set_xlim(-0.3, max(map(len, TEXTS)) + RULES.num_speculative_tokens + 0.3)
    ax.set_ylim(len(TEXTS) - 0.4, -0.6)
    ax.set_xticks([])
    ax.set_yticks([])
    palette.bare(ax)
    ax.spines["bottom"].set_visible(False)
    ax.spines["left"].set_visible(False)
    figure.legend(
        handles=[Patch(color=palette.PROMPT, label="drafts")], fontsize=palette.SMALL, frameon=False,
        loc="outside lower left",
    )  # fmt: skip
    palette.title(ax, "Your drafts", "a letter is a token · matches of 4 letters down to 2 · at most 4 drafts")
    return figure


def _box(ax: Axes, place: int, row: int, letter: str, face: str) -> None:
    ax.add_patch(Rectangle((place, row - 0.38), 0.92, 0.76, facecolor=face, edgecolor=palette.PALE))
    ink = palette.INK if face == "white" else palette.ink_on(face)
    ax.text(place + 0.46, row, letter.replace(" ", "␣"), ha="center", va="center", fontsize=palette.SMALL, color=ink)
