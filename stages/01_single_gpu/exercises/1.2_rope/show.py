"""Where four pairs point as a token moves on: fast pairs race round, slow ones hardly move."""

from __future__ import annotations

from collections.abc import Callable

import torch
from matplotlib.figure import Figure

PAIRS = 4
POSITIONS = 12


def show(subject: Callable[..., torch.Tensor]) -> Figure:
    """Turn the pair (1, 0) of four frequencies by the learner's function at twelve positions, a circle a pair."""
    frequencies = torch.tensor([10.0 ** (-i / 2) for i in range(PAIRS)])  # radians a position
    angles = torch.arange(POSITIONS)[:, None] * frequencies  # [positions, pairs]
    x = torch.cat((torch.ones(POSITIONS, 1, PAIRS), torch.zeros(POSITIONS, 1, PAIRS)), dim=-1)
    turned = subject(x, angles.cos(), angles.sin())[:, 0].float()  # [positions, 2 * pairs]

    figure = Figure(figsize=(10, 3), layout="constrained")
    for pair, axes in enumerate(figure.subplots(1, PAIRS)):
        axes.plot(angles.new_tensor(range(101)).mul(0.0628).cos(), angles.new_tensor(range(101)).mul(0.0628).sin(),
                  color="0.85", zorder=0)  # fmt: skip
        dots = axes.scatter(turned[:, pair], turned[:, pair + PAIRS], c=range(POSITIONS), cmap="viridis")
        axes.set_title(
            f"numbers {pair} and {pair + PAIRS}\n{float(frequencies[pair]):.2f} radians a position", fontsize=9
        )
        axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal", xticks=[], yticks=[])
    figure.colorbar(dots, ax=figure.axes, label="position", shrink=0.8)
    return figure
