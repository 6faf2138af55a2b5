"""One request after the other, one token after the other, in whole fractions of what is left."""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Walk along the parts until the number lies in one."""
    result = []
    for p, q, number in zip(target.double().tolist(), draft.double().tolist(), uniform.tolist(), strict=True):
        widths = [max(of_target - of_draft, 0.0) for of_target, of_draft in zip(p, q, strict=True)]
        if sum(widths) == 0:
            widths = p
        total, end = sum(widths), 0.0
        for token, width in enumerate(widths):
            end += width / total
            if number < end:
                result.append(token)
                break
    return torch.tensor(result)
