"""Stops in front of the token that would carry the sum over p."""

import torch

from sixfold.exercises.variants import sampler_with


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    columns = (column[:, 0].tolist() for column in (top_k, top_p, min_p))
    rows = [_row(*row) for row in zip(logits, *columns, strict=True)]
    return torch.stack(rows)


def _row(row: torch.Tensor, k: int, p: float, share: float) -> torch.Tensor:
    probs = row.softmax(0)
    row = row.masked_fill(probs < share * probs.max(), -torch.inf)
    row = row.masked_fill(row < row.topk(k).values.min(), -torch.inf)
    probs, order = row.softmax(0).sort(descending=True)
    total, keep = 0.0, []
    for prob, token in zip(probs.tolist(), order.tolist(), strict=True):
        total += prob
        if total > p:
            break
        keep.append(token)
    out = torch.full_like(row, -torch.inf)
    out[keep] = row[keep]
    return out


TorchSampler = sampler_with(filter_logits)
