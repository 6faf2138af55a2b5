"""p minus what drafts leave of it, taken of q by mistake."""

import torch


def draw_residual(target, draft, uniform):
    tokens = []
    for p, q, number in zip(target.tolist(), draft.tolist(), uniform.tolist(), strict=True):
        widths = [b - min(a, b) for a, b in zip(p, q, strict=True)]
        widths = widths if sum(widths) else p
        token, end = 0, widths[0]
        while end <= number * sum(widths) and token + 1 < len(widths):
            token += 1
            end += widths[token]
        tokens.append(token)
    return torch.tensor(tokens)
