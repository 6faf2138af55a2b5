"""What the filters leave of a real distribution.

Owns the layout. Reads one row of logits and calls a filter, the engine's or the learner's.

vLLM: ``v1/sample/ops/topk_topp_sampler.py`` has the filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from stage1.trace import palette

Filter = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def draw_filters(
    logits: torch.Tensor,
    filter_logits: Filter,
    settings: Sequence[dict[str, Any]],
    names: Callable[[int], str],
    most: int = 12,
) -> Figure:
    """``logits`` [vocab]: the most likely tokens, and for each of ``settings`` what remains, renormalised."""
    best = logits.argsort(descending=True)[:most]
    figure = palette.new_figure(2.9 * len(settings), 3.2)
    axes = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    before = logits.softmax(0)
    for ax, setting in zip(axes, settings, strict=True):
        kept = filter_logits(
            (logits / setting.get("temperature", 1.0))[None],
            torch.tensor([[setting.get("top_k", len(logits))]]),
            torch.tensor([[setting.get("top_p", 2.0)]]),
            torch.tensor([[setting.get("min_p", 0.0)]]),
        )[0]
        ax.barh(range(len(best)), kept.softmax(0)[best].tolist(), color=palette.PROMPT)
        ax.plot(before[best].tolist(), range(len(best)), "|", color=palette.MARK, markersize=12, markeredgewidth=2.5)
        text = ", ".join(f"{name} = {value}" for name, value in setting.items()) or "no filter"
        ax.set_title(f"{text}\n{int(kept.isfinite().sum()):,} tokens left", loc="left", fontsize=palette.NORMAL)
        ax.set_xlabel("probability", fontsize=palette.SMALL)
        palette.bare(ax)
    axes[0].set_yticks(range(len(best)), [names(int(token)) for token in best])
    axes[0].invert_yaxis()
    return figure
