"""A request is called bad for a position that it does not need.

Behind the first wrong draft, and in the padding, the target has computed something, and it may well be nonsense: it
is thrown away. Only positions among the first `counts` can spoil a request.
"""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """Any position of the row."""
    place = torch.arange(drawn.shape[1], device=drawn.device)
    same = (drawn[:, :-1] == drafts.ids) & (place[:-1] < drafts.counts[:, None])
    counts = 1 + same.cumprod(dim=1).sum(dim=1)
    return Sampled(drawn, counts, bad_rows.any(dim=1))
