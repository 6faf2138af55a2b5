"""What comes out in all: the drafts that stay, and the subject's replacements on top of them, against the target."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.figure import Figure

from stage1.trace import palette

WORDS = ("the", "a", "cat", "dog", "sat")
TARGET, DRAFT = (0.40, 0.30, 0.15, 0.10, 0.05), (0.20, 0.20, 0.20, 0.30, 0.10)
DRAWS = 3000


def show(subject: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> Figure:
    """A bar a word: min(p, q) stays, and the subject fills up the rest; outlines are p and q."""
    p, q = torch.tensor([TARGET] * DRAWS), torch.tensor([DRAFT] * DRAWS)
    uniform = (torch.arange(DRAWS, dtype=torch.float64) + 0.5) / DRAWS
    drawn = subject(p, q, uniform)
    stays = torch.minimum(p[0], q[0])
    instead = torch.bincount(drawn, minlength=len(WORDS)) / DRAWS * (1 - stays.sum())
    figure = palette.new_figure(8.5, 3.2)
    ax = figure.subplots()
    places = range(len(WORDS))
    ax.bar(places, stays.tolist(), width=0.5, color=palette.PROMPT, label="drafts that stay")
    ax.bar(places, instead.tolist(), width=0.5, bottom=stays.tolist(), color=palette.MARK, label="yours, instead")
    ax.hlines(TARGET, [i - 0.36 for i in places], [i + 0.36 for i in places], color=palette.INK, label="the target, p")
    ax.hlines(
        DRAFT, [i - 0.36 for i in places], [i + 0.36 for i in places], color=palette.PALE, linestyle=":",
        label="the drafts, q",
    )  # fmt: skip
    ax.set_xticks(places, WORDS)
    ax.set_ylabel("share", fontsize=palette.SMALL, color=palette.INK)
    palette.bare(ax)
    ax.legend(fontsize=palette.SMALL, frameon=False)
    off_by = float((stays + instead - p[0]).abs().max())
    palette.title(ax, "What comes out", f"largest distance to the target: {off_by:.3f}")
    return figure
