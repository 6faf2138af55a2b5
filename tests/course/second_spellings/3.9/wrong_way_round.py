"""p minus what drafts leave of it, taken of q by mistake."""

import torch


def draw_residual(target, draft, uniform):
    tokens = []
    for p, q, number in zip(target.tolist(), draft.tolist(), uniform.tolist(), strict=True):
        widths = [b - min(a, b) for a, b in zip(p, q, strict=True)]
        widths = widths if sum(widths) else p
        end = 0.0
        for token, width in enumerate(widths):
            end += width
            if end > number * sum(widths):
                break
        tokens.append(token)
    return torch.tensor(tokens)
