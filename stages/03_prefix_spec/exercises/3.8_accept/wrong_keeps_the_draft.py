"""At the place of the first wrong draft stands the draft.

The number of tokens is right, the last of them is not. A draft that does not match is thrown away; the target's token
takes its place. As drafts that stay *are* the target's tokens, the result is cut from `drawn` alone.
"""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """The drafts, and the last draw behind them."""
    place = torch.arange(drawn.shape[1], device=drawn.device)
    is_draft = place[:-1] < drafts.counts[:, None]
    same = (drawn[:, :-1] == drafts.ids) & is_draft
    counts = 1 + same.cumprod(dim=1).sum(dim=1)
    ids = drawn.clone()
    ids[:, :-1] = torch.where(is_draft, drafts.ids, drawn[:, :-1])
    return Sampled(ids, counts, (bad_rows & (place < counts[:, None])).any(dim=1))
