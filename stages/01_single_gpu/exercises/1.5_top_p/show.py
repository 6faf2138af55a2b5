"""How often each token comes out of the learner's sampler, with and without filters."""

from __future__ import annotations

import math
from typing import Any

import torch
from matplotlib.figure import Figure

from stage1.batch import ForwardBatch, RowState
from stage1.params import SamplingParams
from stage1.trace import palette

PROBS = [0.05, 0.31, 0.02, 0.22, 0.12, 0.18, 0.10]
DRAWS = 2000
FILTERS: list[dict[str, Any]] = [{}, {"min_p": 0.25}, {"top_k": 3}, {"top_p": 0.6}]


def show(subject: Any) -> Figure:
    """Four panels: no filter, min-p, top-k, top-p; bars are shares of 2,000 draws, lines the model's probabilities."""
    figure = palette.new_figure(10.0, 2.7)
    axes = figure.subplots(1, len(FILTERS), sharey=True)
    for ax, filters in zip(axes, FILTERS, strict=True):
        shares = _shares(subject, filters)
        ax.bar(range(len(PROBS)), shares, color=palette.PROMPT)
        for token, p in enumerate(PROBS):
            ax.hlines(p, token - 0.45, token + 0.45, color=palette.MARK, linewidth=2)
        names = ", ".join(f"{name} = {value}" for name, value in filters.items()) or "no filter"
        palette.bare(ax)
        ax.set_title(names, loc="left", fontsize=palette.NORMAL)
        ax.set_xlabel("token", fontsize=palette.SMALL)
    axes[0].set_ylabel("share of the draws", fontsize=palette.SMALL)
    figure.suptitle("Your filters: bars were drawn, orange lines are the model's probabilities", x=0.01, ha="left",
                    fontsize=palette.TITLE, fontweight="bold")  # fmt: skip
    return figure


def _shares(subject: Any, filters: dict[str, Any]) -> list[float]:
    """Shares of the tokens in ``DRAWS`` rows with different seeds."""
    params = SamplingParams(**filters)
    states = [RowState(str(seed), params, 7919 * seed + 3, 2, [1, 2], [], 0) for seed in range(DRAWS)]
    rows = torch.arange(DRAWS)
    ones = torch.ones_like(rows)
    batch = ForwardBatch(rows, ones, ones, torch.arange(DRAWS + 1), ones * 2, rows[:, None], rows, rows, 1, 2, states,
                         [True] * DRAWS)  # fmt: skip
    logits = torch.tensor([[math.log(p) for p in PROBS]]).repeat(DRAWS, 1)
    counts = subject().sample(logits, batch).ids[:, 0].bincount(minlength=len(PROBS))
    return [count / DRAWS for count in counts.tolist()]
