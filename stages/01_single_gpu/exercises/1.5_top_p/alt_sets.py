"""Row by row, with probabilities and sets, as the rules are worded."""

from __future__ import annotations

import torch

from sixfold.exercises.variants import sampler_with


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Loops over rows; slow, and right."""
    out = logits.clone()
    for row, k, p, share in zip(out, top_k[:, 0].tolist(), top_p[:, 0].tolist(), min_p[:, 0].tolist(), strict=True):
        probs = row.softmax(0)
        row[probs < share * probs.max()] = -torch.inf
        row[row < row.topk(k).values[-1]] = -torch.inf
        probs = row.softmax(0)
        better = (probs[None] * (probs[None] > probs[:, None])).sum(1)  # [vocab] of all tokens more likely than each
        row[(better >= p) & (probs < probs.max())] = -torch.inf
    return out


TorchSampler = sampler_with(filter_logits)
