"""The learner's pieces: two prompts of 20 tokens and what they leave to others, without a threshold and with one."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from stage1.trace import palette

BUDGET, GAP = 8, 20
DECODES = 2  # requests that need one token in every step
MOST_STEPS = 13
ROWS = ("decodes", "first prompt", "second prompt")


def show(subject: Callable[[int, int, int], int]) -> Figure:
    """A column a step, stacked: the decodes, then what each prompt gets of the budget."""
    figure = palette.new_figure(9.0, 3.4)
    for ax, threshold in zip(figure.subplots(1, 2, sharey=True), (0, 2), strict=True):
        gaps = [GAP, GAP]
        for step in range(1, MOST_STEPS + 1):
            heights = [DECODES]
            for i, gap in enumerate(gaps):
                left = BUDGET - sum(heights)
                heights.append(subject(gap, left, threshold) if gap and left > 0 else 0)
                gaps[i] -= heights[-1]
            bottom = 0
            for row, height in enumerate(heights):
                label = ROWS[row] if step == 1 else None
                ax.bar(step, height, bottom=bottom, width=0.85, color=palette.owner_colour(row), label=label)
                bottom += height
        ax.axhline(BUDGET, color=palette.INK, linewidth=0.8, linestyle="--")
        ax.set_xlabel("step", fontsize=palette.NORMAL)
        palette.bare(ax)
        palette.title(
            ax, f"threshold {threshold}" if threshold else "no threshold", "tokens in each step, by whose they are"
        )
    ax.legend(fontsize=palette.SMALL, frameon=False, loc="upper right")
    return figure
