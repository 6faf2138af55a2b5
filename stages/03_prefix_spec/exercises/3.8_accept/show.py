"""The learner's verdict on four requests: drafts above, the target's draws below, what stays filled."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from stage1.batch import Sampled
from stage1.interfaces import Drafts
from stage1.trace import palette

DRAFTS = ("cat ", "dog ", "hat", "")
DRAWN = ("cat s", "dim o", "mat i", "sun  ")


def show(subject: Callable[[torch.Tensor, torch.Tensor, Drafts], Sampled]) -> Figure:
    """A panel a request: what the subject returns is framed in the lower row and filled."""
    ids = torch.tensor([list(text.ljust(4).encode()) for text in DRAFTS])
    drawn = torch.tensor([list(text.encode()) for text in DRAWN])
    counts = torch.tensor([len(text) for text in DRAFTS])
    result = subject(drawn, torch.zeros_like(drawn, dtype=torch.bool), Drafts(ids, counts))
    figure = palette.new_figure(9.5, 2.6)
    for r, ax in enumerate(figure.subplots(1, len(DRAFTS))):
        for place, letter in enumerate(DRAFTS[r]):
            _box(ax, place, 0, letter, "white")
        meant = bytes(result.ids[r, : int(result.counts[r])].tolist()).decode(errors="replace")
        for place in range(drawn.shape[1]):
            letter = (meant + DRAWN[r][len(meant) :])[place]
            needed = place <= len(DRAFTS[r])
            if needed:
                _box(ax, place, 1, letter, palette.PROMPT if place < len(meant) else palette.SINGLE)
        ax.set_xlim(-0.2, drawn.shape[1] + 0.2)
        ax.set_ylim(1.7, -0.7)
        ax.set_xticks([])
        ax.set_yticks([0, 1], ["drafts", "drawn"] if r == 0 else ["", ""])
        palette.bare(ax)
        ax.tick_params(length=0)
        ax.spines["bottom"].set_visible(False)
        ax.spines["left"].set_visible(False)
        palette.title(ax, f"request {'abcd'[r]}", palette.count(len(meant), "token"))
    handles = [Patch(color=palette.PROMPT, label="yours"), Patch(color=palette.SINGLE, label="thrown away")]
    figure.legend(handles=handles, fontsize=palette.SMALL, frameon=False, ncols=2, loc="outside lower left")
    return figure


def _box(ax: Axes, place: int, row: int, letter: str, face: str) -> None:
    ax.add_patch(Rectangle((place, row - 0.4), 0.92, 0.8, facecolor=face, edgecolor=palette.PALE))
    ink = palette.INK if face == "white" else palette.ink_on(face)
    ax.text(place + 0.46, row, letter.replace(" ", "␣"), ha="center", va="center", fontsize=palette.NORMAL, color=ink)
