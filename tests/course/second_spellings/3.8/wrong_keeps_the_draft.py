"""Copies one draft too many."""

import torch

from stage1.batch import Sampled


def accept_matching(drawn, bad_rows, drafts):
    counts = []
    for row, ids, most in zip(drawn.tolist(), drafts.ids.tolist(), drafts.counts.tolist(), strict=True):
        count = 0
        while count < most and row[count] == ids[count]:
            count += 1
        counts.append(count + 1)
    result = drawn.clone()
    for r, count in enumerate(counts):
        kept = min(count, int(drafts.counts[r]))
        result[r, :kept] = drafts.ids[r, :kept]
    bad = [bool(bad_rows[r, :count].any()) for r, count in enumerate(counts)]
    return Sampled(result, torch.tensor(counts), torch.tensor(bad))
