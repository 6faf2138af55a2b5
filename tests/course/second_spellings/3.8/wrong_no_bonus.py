"""Counts what stays, request by request."""

import torch

from stage1.batch import Sampled


def accept_matching(drawn, bad_rows, drafts):
    counts = []
    for row, ids, most in zip(drawn.tolist(), drafts.ids.tolist(), drafts.counts.tolist(), strict=True):
        count = 0
        while count < most and row[count] == ids[count]:
            count += 1
        counts.append(count)
    bad = [bool(bad_rows[r, :count].any()) for r, count in enumerate(counts)]
    return Sampled(drawn, torch.tensor(counts), torch.tensor(bad))
