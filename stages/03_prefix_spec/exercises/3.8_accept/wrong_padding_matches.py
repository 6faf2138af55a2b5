"""Padding is compared like a draft.

Requests in a batch have different numbers of drafts, and the tensor is as wide as the most. Behind a request's own
drafts anything may stand, also by chance the right token; nothing was computed for it there. Only the first
`drafts.counts` of a row are drafts.
"""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """All k of them."""
    place = torch.arange(drawn.shape[1], device=drawn.device)
    counts = 1 + (drawn[:, :-1] == drafts.ids).cumprod(dim=1).sum(dim=1)
    return Sampled(drawn, counts, (bad_rows & (place < counts[:, None])).any(dim=1))
