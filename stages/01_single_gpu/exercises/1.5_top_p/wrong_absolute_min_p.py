"""min-p is compared with the probability itself.

min-p is a share of the largest probability: with a best token at 0.31, min_p 0.25 keeps what has at least 0.078. As an
absolute bar it would empty every flat distribution. In logits it is short: the largest logit plus log(min_p).
"""

from __future__ import annotations

import torch

from sixfold.exercises.variants import sampler_with


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Forgets to multiply with the maximum."""
    logits = logits.masked_fill(logits.softmax(1) < min_p, -torch.inf)
    best = logits.sort(dim=1, descending=True).values
    floor = best.gather(1, top_k - 1)
    probs = best.masked_fill(best < floor, -torch.inf).softmax(1)
    last = ((probs.cumsum(1) - probs) < top_p).sum(1, keepdim=True) - 1
    floor = torch.maximum(floor, best.gather(1, last.clamp(min=0)))
    return logits.masked_fill(logits < floor, -torch.inf)


TorchSampler = sampler_with(filter_logits)
