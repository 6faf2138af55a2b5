"""A picture of the learner's norm: rows of very different size leave it with the same one."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from stage1.trace import palette


def show(subject: Any) -> Figure:
    """Six rows before and after, each number a dot, and the root mean square of each row as a bar."""
    generator = torch.Generator().manual_seed(11)
    sizes = torch.tensor([0.2, 0.5, 1.0, 2.0, 4.0, 8.0])[:, None]
    x = torch.randn(6, 24, generator=generator) * sizes  # [6, 24]
    norm, _ = subject().add_rms_norm(x.clone(), None, torch.ones(24), 1e-6)
    figure = palette.new_figure(9.0, 3.4)
    before, after = figure.subplots(1, 2)
    for ax, rows, name in ((before, x, "before"), (after, norm.float(), "after your norm")):
        root = rows.pow(2).mean(-1).sqrt()
        for i, row in enumerate(rows.tolist()):
            ax.plot(row, [i] * len(row), "o", markersize=3.5, color=palette.SINGLE)
            ax.plot([-root[i], root[i]], [i, i], color=palette.PROMPT, linewidth=2.5, solid_capstyle="butt")
        ax.set_yticks(range(6), [f"{value:.2f}" for value in root])
        ax.set_ylabel("root mean square of the row", fontsize=palette.SMALL)
        palette.bare(ax)
        palette.title(ax, name, "a dot a number, a bar of ± the root mean square")
    return figure
