"""top-p keeps tokens while their sum stays at or below p.

The kept tokens must hold *at least* top_p together, so the token that carries the sum across p stays. Ask for each
token how much the better ones have: below top_p it stays. This keeps the best token always, because before it there
is nothing.
"""

from __future__ import annotations

import torch

from sixfold.exercises.variants import sampler_with


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Compares the sum with the token itself in it."""
    best = logits.sort(dim=1, descending=True).values
    floor = torch.maximum(best[:, :1] + min_p.log(), best.gather(1, top_k - 1))
    probs = best.masked_fill(best < floor, -torch.inf).softmax(1)
    num_kept = (probs.cumsum(1) <= top_p).sum(1, keepdim=True)
    last = best.gather(1, (num_kept - 1).clamp(min=0))
    floor = torch.maximum(floor, torch.where(num_kept > 0, last, torch.inf))
    return logits.masked_fill(logits < floor, -torch.inf)


TorchSampler = sampler_with(filter_logits)
