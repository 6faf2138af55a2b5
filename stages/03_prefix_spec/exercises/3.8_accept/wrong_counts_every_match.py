"""Every draft that matches is counted, also behind one that does not.

What the target drew behind a wrong draft was computed with that draft in the text, a text that is no more. It says
nothing about the text that stays. Count up to the first mismatch: a running product of zeros and ones does that.
"""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """The sum of all matches."""
    place = torch.arange(drawn.shape[1], device=drawn.device)
    same = (drawn[:, :-1] == drafts.ids) & (place[:-1] < drafts.counts[:, None])
    counts = 1 + same.sum(dim=1)
    return Sampled(drawn, counts, (bad_rows & (place < counts[:, None])).any(dim=1))
