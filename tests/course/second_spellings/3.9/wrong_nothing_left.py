"""Walks along the parts, and ends at the last token where there are none."""

import torch


def draw_residual(target, draft, uniform):
    tokens = []
    for p, q, number in zip(target.tolist(), draft.tolist(), uniform.tolist(), strict=True):
        widths = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
        end = 0.0
        for token, width in enumerate(widths):
            end += width
            if number * sum(widths) < end:
                break
        tokens.append(token)
    return torch.tensor(tokens)
