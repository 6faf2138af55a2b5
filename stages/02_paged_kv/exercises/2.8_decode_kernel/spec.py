"""Attention of one query head over a paged cache, in Python's own numbers."""

from __future__ import annotations

import math

Cache = list[list[list[list[float]]]]  # [block][slot][KV head][dim]


def read(cache: Cache, blocks: list[int], length: int, kv_head: int) -> list[list[float]]:
    """The first ``length`` keys (or values) of a request that has ``blocks``, in the order of its tokens."""
    block_size = len(cache[0])
    return [cache[blocks[j // block_size]][j % block_size][kv_head] for j in range(length)]


def attend(query: list[float], keys: list[list[float]], values: list[list[float]], scale: float) -> list[float]:
    """The values, weighted with the softmax of the scaled scores; zeros where there is no key."""
    if not keys:
        return [0.0] * len(query)
    scores = [scale * sum(a * b for a, b in zip(query, key, strict=True)) for key in keys]
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    total = sum(weights)
    return [sum(w * value[d] for w, value in zip(weights, values, strict=True)) / total for d in range(len(query))]
