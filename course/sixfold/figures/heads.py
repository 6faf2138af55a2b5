"""Attention weights of grouped heads in a real run.

Owns the layout. Reads weights that an ``AttentionWatch`` kept.

vLLM: ``vllm/attention/layer.py`` computes the same weights, and never stores them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from stage1.trace import palette


def draw_heads(weights: torch.Tensor, num_kv_heads: int, words: Sequence[str], most: int = 6) -> Figure:
    """``weights`` [heads, Q, S] of one request and layer; the frame's colour is the KV head that a query head reads."""
    heads = weights.shape[0]
    drawn = min(heads, most)
    figure = palette.new_figure(2.1 * drawn, 3.1)
    axes = figure.subplots(1, drawn, sharey=True)
    for h, ax in enumerate(axes):
        kv = h // (heads // num_kv_heads)
        ax.imshow(weights[h].float().cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        ax.set_title(f"head {h} · KV head {kv}", fontsize=palette.NORMAL, color=palette.owner_colour(kv))
        ax.set_xticks(range(len(words)), list(words), rotation=90, fontsize=palette.SMALL - 1)
        for spine in ax.spines.values():
            spine.set_color(palette.owner_colour(kv))
            spine.set_linewidth(2)
    axes[0].set_yticks(range(len(words)), list(words), fontsize=palette.SMALL - 1)
    axes[0].set_ylabel("query", fontsize=palette.SMALL)
    return figure
