"""One request after the other, one token after the other."""

from __future__ import annotations

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts


def accept_matching(drawn: torch.Tensor, bad_rows: torch.Tensor, drafts: Drafts) -> Sampled:
    """Plain decoding, told what it would have drawn: it goes on for as long as the drafts agree with it."""
    num_reqs, width = drawn.shape
    ids = torch.zeros(num_reqs, width, dtype=torch.int64)
    counts, bad = [], []
    for r in range(num_reqs):
        known = drafts.ids[r, : int(drafts.counts[r])].tolist()
        output: list[int] = []
        is_bad = False
        while True:
            place = len(output)
            is_bad = is_bad or bool(bad_rows[r, place])
            output.append(int(drawn[r, place]))
            if place == len(known) or output[place] != known[place]:
                break
        ids[r, : len(output)] = torch.tensor(output)
        counts.append(len(output))
        bad.append(is_bad)
    return Sampled(ids, torch.tensor(counts), torch.tensor(bad))
