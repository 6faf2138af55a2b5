"""Which tokens may be drawn, with sets and loops over probabilities."""

from __future__ import annotations

import math


def probabilities(logits: list[float], tokens: set[int]) -> dict[int, float]:
    """Softmax over ``tokens`` alone."""
    weights = {token: math.exp(logits[token]) for token in tokens}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def kept(logits: list[float], top_k: int, top_p: float, min_p: float) -> set[int]:
    """min-p, then top-k, then top-p, each on what is left; ``top_k`` 0 and ``top_p`` 1 are off."""
    probs = probabilities(logits, set(range(len(logits))))
    left = {token for token, p in probs.items() if p >= min_p * max(probs.values())}
    if top_k:
        bar = sorted((logits[token] for token in left), reverse=True)[:top_k][-1]
        left = {token for token in left if logits[token] >= bar}
    if top_p < 1:
        probs = probabilities(logits, left)
        left = {token for token in left if sum(p for p in probs.values() if p > probs[token]) < top_p}
    return left
