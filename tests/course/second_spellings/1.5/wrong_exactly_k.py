"""Scatters the k best back."""

import torch

from sixfold.exercises.variants import sampler_with


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    columns = (column[:, 0].tolist() for column in (top_k, top_p, min_p))
    rows = [_row(*row) for row in zip(logits, *columns, strict=True)]
    return torch.stack(rows)


def _row(row: torch.Tensor, k: int, p: float, share: float) -> torch.Tensor:
    probs = row.softmax(0)
    row = row.masked_fill(probs < share * probs.max(), -torch.inf)
    best = row.sort(descending=True, stable=True)
    out = torch.full_like(row, -torch.inf)
    row = out.scatter(0, best.indices[:k], best.values[:k])
    probs, order = row.softmax(0).sort(descending=True)
    total = 0.0
    for place in range(len(order)):
        if total >= p:
            row = row.masked_fill(row < row[order[place - 1]], -torch.inf)
            break
        total += probs[place].item()
    return row


TorchSampler = sampler_with(filter_logits)
