"""Who looks at whom: the learner's attention weights on a small prompt."""

from __future__ import annotations

import math
from typing import Any

import torch
from matplotlib.figure import Figure

from stage1.trace import palette


def show(subject: Any) -> Figure:
    """Four query heads on two KV heads, seven tokens. With one-hot values the output *is* the weights."""
    tokens, heads, kv_heads = 7, 4, 2
    generator = torch.Generator().manual_seed(5)
    q = torch.randn(1, tokens, heads, tokens, generator=generator) * 1.5
    k = torch.randn(1, kv_heads, tokens, tokens, generator=generator)
    v = torch.eye(tokens).expand(1, kv_heads, -1, -1)
    mask = torch.full((1, tokens, tokens), -math.inf).triu(1)
    weights = subject.grouped(q, k, v, mask)[0].unflatten(-1, (heads, tokens))  # [Q, heads, S]
    figure = palette.new_figure(10.0, 3.3)
    axes = figure.subplots(1, heads, sharey=True)
    for h, ax in enumerate(axes):
        ax.imshow(weights[:, h].float().numpy(), cmap="Blues", vmin=0, vmax=1)
        sums = weights[:, h].sum(-1)
        off = (sums - 1).abs().max()
        ax.set_title(f"query head {h} · KV head {h // (heads // kv_heads)}", fontsize=palette.NORMAL)
        ax.set_xlabel("key" if off < 1e-3 else f"key (a row adds up to {sums.min():.2f}!)", fontsize=palette.SMALL)
        ax.tick_params(labelsize=palette.SMALL)
    axes[0].set_ylabel("query", fontsize=palette.SMALL)
    figure.suptitle("Your attention weights", x=0.01, ha="left", fontsize=palette.TITLE, fontweight="bold")
    return figure
