"""A binary search that stops at the left of what is equal."""

import torch


def draw_residual(target, draft, uniform):
    residual = torch.relu(target - draft).double()
    total = residual.sum(dim=1, keepdim=True)
    probs = torch.where(total > 0, residual / total, target.double())
    return torch.searchsorted(probs.cumsum(dim=1), uniform[:, None])[:, 0]
