"""RoPE's turning pairs: how far each pair of a head turns from token to token, and what that does to scores.

Owns the layout. Reads a model's shape and calls a rotation, the engine's or the learner's.

vLLM: ``vllm/model_executor/layers/rotary_embedding/`` holds what is drawn.
"""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from stage1.attention import Rotate
from stage1.model.rope import rope_frequencies, rope_tables
from stage1.model.shape import ModelShape
from stage1.trace import palette

POSITIONS = 9


def draw_turning_pairs(shape: ModelShape, rotate: Rotate) -> Figure:
    """Left: three pairs as clocks, a hand a position. Right: one query and key at many distances, from three places."""
    cos, sin = rope_tables(shape, 512, torch.device("cpu"))
    half, dim = shape.head_dim // 2, shape.head_dim
    figure = palette.new_figure(11.0, 3.2)
    axes = figure.subplots(1, 4, width_ratios=[1, 1, 1, 2.2])
    unit = torch.zeros(POSITIONS, 1, dim)
    unit[..., :half] = 1.0
    turned = rotate(unit, cos[:POSITIONS], sin[:POSITIONS])[:, 0]  # [positions, dim]
    frequencies = rope_frequencies(shape)
    for ax, pair in zip(axes, (0, half // 6, half // 3), strict=False):
        for position in range(POSITIONS):
            x, y = turned[position, pair].item(), turned[position, pair + half].item()
            colour = palette.lighter(palette.PROMPT, 0.8 * (1 - (position + 1) / POSITIONS))
            ax.plot([0, x], [0, y], color=colour, linewidth=2)
        ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal", xticks=[], yticks=[])
        text = f"numbers {pair} and {pair + half}\n{frequencies[pair]:.3g} radians a token"
        ax.set_title(text, fontsize=palette.NORMAL, color=palette.INK)
    generator = torch.Generator().manual_seed(2)
    base = torch.randn(dim, generator=generator)
    query, key = base, base + 0.3 * torch.randn(dim, generator=generator)
    distances = torch.arange(0, 60)
    for start, style in ((0, "-"), (100, "--"), (400, ":")):
        places = start + distances
        turned_key = rotate(key.view(1, 1, -1), cos[start : start + 1], sin[start : start + 1])[0, 0]
        turned_query = rotate(query.expand(len(places), 1, -1), cos[places], sin[places])[:, 0]
        axes[3].plot(distances, turned_query @ turned_key, style, linewidth=2, label=f"key at {start}")
    axes[3].set_xlabel("distance between query and key, tokens", fontsize=palette.SMALL)
    axes[3].set_ylabel("score", fontsize=palette.SMALL)
    axes[3].legend(fontsize=palette.SMALL, frameon=False)
    axes[3].set_title("the score depends on the distance alone", fontsize=palette.NORMAL)
    palette.bare(axes[3])
    return figure


def draw_error_by_position(errors: torch.Tensor, words: str) -> Figure:
    """The largest difference of the logits at each position: where does it begin?"""
    figure = palette.new_figure(8.0, 2.3)
    ax = figure.subplots()
    ax.bar(range(len(errors)), errors.tolist(), color=palette.LOST)
    ax.set_xlabel("position of the token", fontsize=palette.NORMAL)
    ax.set_ylabel("largest difference", fontsize=palette.NORMAL)
    palette.bare(ax)
    palette.title(ax, "How far the logits are off", words)
    return figure
