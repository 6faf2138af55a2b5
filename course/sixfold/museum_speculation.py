"""The bug museum, speculation: a verdict over drafts with one reduced fault.

Owns the fault. Its outputs are right, so it must be found from what the steps give. What is wrong is not told here but
in the notebook that shows it.

vLLM: none; the fault is of engines in general.
"""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def suspect_accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """The target's tokens, as far as the drafts are right: [R, 1 + k], [R, 1 + k], [R, k] → ids [R, 1 + k]."""
    place = torch.arange(drawn.shape[1], device=drawn.device)  # [1 + k]
    stays = (drawn[:, :-1] == drafts.ids) & (place[:-1] < drafts.counts[:, None])  # [R, k]
    counts = stays.cumprod(dim=1).sum(dim=1).clamp(min=1)  # [R]
    return Sampled(drawn, counts, (bad_rows & (place < counts[:, None])).any(dim=1))
