"""What takes a rejected draft's place is drawn from the target.

That is how the target always draws, but here some of p has been given out already: the drafts that stayed are tokens of
p, too. What is drawn now has to make up for what the drafts give too little of, and for nothing else. Drawn from p, it
goes in part to tokens that have had their share, and the output is biased towards the drafter.
"""

from __future__ import annotations

import torch


def draw_residual(target: torch.Tensor, draft: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """From p."""
    reached = target.double().cumsum(dim=1)
    return (reached <= uniform[:, None] * reached[:, -1:]).sum(dim=1).clamp(max=target.shape[1] - 1)
