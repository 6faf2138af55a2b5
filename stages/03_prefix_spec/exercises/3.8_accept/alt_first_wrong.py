"""The place of the first draft that does not stay, found as a maximum."""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """What is no draft counts as wrong, and so does the place behind all drafts."""
    place = torch.arange(drawn.shape[1], device=drawn.device)
    wrong = torch.ones_like(drawn, dtype=torch.bool)
    wrong[:, :-1] = (drawn[:, :-1] != drafts.ids) | (place[:-1] >= drafts.counts[:, None])
    first = wrong.int().argmax(dim=1)
    bad = (bad_rows & (place <= first[:, None])).any(dim=1)
    return Sampled(drawn, first + 1, bad)
