"""Walks along the parts, and ends at the last token where there are none."""

import torch


def draw_residual(target, draft, uniform):
    tokens = []
    for p, q, number in zip(target.tolist(), draft.tolist(), uniform.tolist(), strict=True):
        widths = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
        token, end = 0, widths[0]
        while end <= number * sum(widths) and token + 1 < len(widths):
            token += 1
            end += widths[token]
        tokens.append(token)
    return torch.tensor(tokens)
