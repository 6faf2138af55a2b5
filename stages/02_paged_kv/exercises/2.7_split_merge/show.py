"""Four splits of one request, and what the learner makes of them."""

from __future__ import annotations

from typing import Any

import torch
from matplotlib.figure import Figure

from stage1.trace import palette
from stage2.kernels.merge_splits import merge_splits

TILE, SPLITS, DIM = 16, 4, 8


def show(subject: Any) -> Figure:
    """Left: how much each split counts. Right: the splits' averages, the learner's, and the one over all keys."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(3)
    num_keys = 3 * 32 + 10
    scores = torch.randn(num_keys, generator=generator) * 1.5  # base 2
    scores[-10:] += 3.0  # the shortest split is looked at most
    values = torch.randn(num_keys, DIM, generator=generator)
    whole = (scores * torch.log(torch.tensor(2.0))).softmax(0)  # [keys]

    partial, lse = torch.zeros(1, 1, SPLITS, DIM), torch.zeros(1, 1, SPLITS)
    for s, keys in enumerate(torch.arange(num_keys).split(2 * TILE)):
        weights = scores[keys].exp2()
        partial[0, 0, s], lse[0, 0, s] = weights @ values[keys] / weights.sum(), weights.sum().log2()
    out = torch.full((1, 1, DIM), torch.nan, device=device)
    lens = torch.tensor([num_keys], device=device)
    merge_splits(partial.to(device), lse.to(device), lens, out, tile=TILE, kernel=subject)

    figure = palette.new_figure(10.0, 3.2)
    left, right = figure.subplots(1, 2, width_ratios=[1, 2])
    shares = torch.stack([part.sum() for part in whole.split(2 * TILE)])
    for s, share in enumerate(shares.tolist()):
        left.bar(s, share, color=palette.owner_colour(s))
        right.plot(partial[0, 0, s].tolist(), "o", color=palette.owner_colour(s), alpha=0.45, label=f"split {s}")
    left.set_xticks(range(SPLITS), [f"split {s}\n{len(k)} keys" for s, k in enumerate(scores.split(2 * TILE))])
    style = {"markersize": 22, "markeredgewidth": 2}
    right.plot((whole @ values).tolist(), "_", color=palette.PALE, label="all keys at once", **style)
    right.plot(out[0, 0].tolist(), "x", color=palette.INK, markersize=9, markeredgewidth=2, label="yours")
    right.set_xlabel("dimension", fontsize=palette.NORMAL)
    right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=palette.SMALL, frameon=False)
    for ax in (left, right):
        palette.bare(ax)
    palette.title(left, "What each split counts", "the share of all softmax weights")
    palette.title(right, "The joined average", "your crosses belong on the dashes")
    return figure
