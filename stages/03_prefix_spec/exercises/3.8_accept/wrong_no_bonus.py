"""Only the drafts that stay are returned.

There is always one token more. Behind the last draft that stays, the target has drawn its own token, from the same
computation: it costs nothing, and it is as good as any. Without it a step in which no draft is right would give
nothing at all.
"""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """As many as stay."""
    place = torch.arange(drawn.shape[1], device=drawn.device)
    same = (drawn[:, :-1] == drafts.ids) & (place[:-1] < drafts.counts[:, None])
    counts = same.cumprod(dim=1).sum(dim=1)
    return Sampled(drawn, counts, (bad_rows & (place < counts[:, None])).any(dim=1))
