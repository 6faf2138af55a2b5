"""top-k keeps exactly k tokens.

Tokens of equal logits stay or go together: top-k is a threshold, the value of the k-th token. Keeping exactly k means
that the order in which a sort leaves equal values decides, and that differs between devices. Compare with the k-th
value instead of scattering the k indices.
"""

from __future__ import annotations

import torch

from sixfold.exercises.variants import sampler_with


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Takes the first k places of a sort."""
    logits = logits.masked_fill(logits < logits.amax(1, keepdim=True) + min_p.log(), -torch.inf)
    place = logits.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    logits = logits.masked_fill(place >= top_k, -torch.inf)
    best = logits.sort(dim=1, descending=True).values
    probs = best.softmax(1)
    last = ((probs.cumsum(1) - probs) < top_p).sum(1, keepdim=True) - 1
    return logits.masked_fill(logits < best.gather(1, last), -torch.inf)


TorchSampler = sampler_with(filter_logits)
