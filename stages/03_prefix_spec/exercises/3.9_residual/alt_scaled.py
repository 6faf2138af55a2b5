"""Row by row, with the number stretched to the width of what is left."""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The first end that the stretched number has not reached."""
    tokens = torch.zeros(len(target), dtype=torch.int64, device=target.device)
    for r in range(len(target)):
        widths = target[r].double() - torch.minimum(target[r], draft[r]).double()
        if not widths.any():
            widths = target[r].double()
        inside = widths.cumsum(0) > uniform[r] * widths.sum()
        tokens[r] = inside.int().argmax()
    return tokens
