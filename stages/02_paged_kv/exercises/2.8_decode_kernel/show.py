"""What the learner's kernel looks at: weights over the keys of a request, block by block."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from stage1.trace import palette
from stage2.kernels.decode_attention import DecodeKernels, paged_decode

BLOCKS, BLOCK_SIZE, LENGTH, HEADS, DIM = [6, 1, 4], 16, 43, 3, 64


def show(subject: Any) -> Figure:
    """Three query heads on one KV head, 43 keys. With one-hot values the output *is* the weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(11)
    cache = torch.full((2, 8, BLOCK_SIZE, 1, DIM), torch.nan)
    q = torch.randn(1, HEADS, DIM, generator=generator)
    keys = torch.randn(LENGTH, DIM, generator=generator)
    for j in range(LENGTH):
        place = BLOCKS[j // BLOCK_SIZE], j % BLOCK_SIZE, 0
        cache[0][place], cache[1][place] = keys[j], torch.eye(DIM)[j]
    weights = paged_decode(
        *(x.to(device) for x in (q, cache[0], cache[1], torch.tensor([BLOCKS + [7] * 16]), torch.tensor([LENGTH]))),
        num_splits=1,
        scale=DIM**-0.5,
        kernels=DecodeKernels(attend=subject),
    )[0, :, :LENGTH]  # [heads, keys]
    wanted = (q[0] @ keys.T * DIM**-0.5).softmax(-1)

    figure = palette.new_figure(10.0, 4.2)
    for h, ax in enumerate(figure.subplots(HEADS, 1, sharex=True)):
        colours = [palette.owner_colour(j // BLOCK_SIZE) for j in range(LENGTH)]
        ax.bar(range(LENGTH), weights[h].tolist(), color=colours, width=0.8)
        ax.plot(range(LENGTH), wanted[h].tolist(), "_", color=palette.INK, markersize=7)
        ax.set_ylabel(f"head {h}", fontsize=palette.NORMAL)
        ax.set_xlim(-0.7, LENGTH - 0.3)
        palette.bare(ax)
        if h == 0:
            total = weights.sum(-1)
            sums = "each row adds up to 1" if (total - 1).abs().max() < 1e-3 else f"rows add up to {total.min():.3g}!"
            palette.title(ax, "What your kernel looks at", f"the dashes are torch's weights; {sums}")
    middles = [BLOCK_SIZE * i + (min(BLOCK_SIZE, LENGTH - BLOCK_SIZE * i) - 1) / 2 for i in range(len(BLOCKS))]
    ax.set_xticks(middles, [f"block {block}" for block in BLOCKS])
    return figure
