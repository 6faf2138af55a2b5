"""top-p counts with the probabilities from before the other filters.

Each filter works on what the one before it left, and that adds up to 1 again. After top-k took the tail away, 0.31 of
0.71 is 0.44, and top-p is full sooner. Take the softmax again over what is left before you sum.
"""

from __future__ import annotations

import torch

from sixfold.exercises.variants import sampler_with


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """One softmax for all three filters."""
    best = logits.sort(dim=1, descending=True).values
    floor = torch.maximum(best[:, :1] + min_p.log(), best.gather(1, top_k - 1))
    probs = best.softmax(1)
    last = ((probs.cumsum(1) - probs) < top_p).sum(1, keepdim=True) - 1
    floor = torch.maximum(floor, best.gather(1, last))
    return logits.masked_fill(logits < floor, -torch.inf)


TorchSampler = sampler_with(filter_logits)
