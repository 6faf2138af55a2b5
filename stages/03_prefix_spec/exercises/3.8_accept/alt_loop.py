"""A flag for each request that still goes on, place by place."""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """All requests at once, one place after the other."""
    goes_on = torch.ones(len(drawn), dtype=torch.bool, device=drawn.device)
    counts = torch.zeros(len(drawn), dtype=torch.int64, device=drawn.device)
    bad = torch.zeros(len(drawn), dtype=torch.bool, device=drawn.device)
    for place in range(drawn.shape[1]):
        counts += goes_on
        bad |= goes_on & bad_rows[:, place]
        if place < drafts.ids.shape[1]:
            goes_on = goes_on & (drafts.counts > place) & (drafts.ids[:, place] == drawn[:, place])
    return Sampled(drawn.clone(), counts, bad)
