"""Walks to the end of the row."""

import torch

from stage1.batch import Sampled


def accept_matching(drawn, bad_rows, drafts):
    counts = []
    for row, ids in zip(drawn.tolist(), drafts.ids.tolist(), strict=True):
        count = 0
        while count < len(ids) and row[count] == ids[count]:
            count += 1
        counts.append(count + 1)
    bad = [bool(bad_rows[r, :count].any()) for r, count in enumerate(counts)]
    return Sampled(drawn, torch.tensor(counts), torch.tensor(bad))
