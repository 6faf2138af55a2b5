"""Adds the bad places up."""

import torch

from stage1.batch import Sampled


def accept_matching(drawn, bad_rows, drafts):
    counts = []
    for row, ids, most in zip(drawn.tolist(), drafts.ids.tolist(), drafts.counts.tolist(), strict=True):
        count = 0
        while count < most and row[count] == ids[count]:
            count += 1
        counts.append(count + 1)
    return Sampled(drawn, torch.tensor(counts), bad_rows.sum(dim=1) > 0)
