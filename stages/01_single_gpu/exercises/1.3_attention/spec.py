"""Attention of one query head at one position, in Python's own numbers."""

from __future__ import annotations

import math


def attend(query: list[float], keys: list[list[float]], values: list[list[float]], mask: list[float]) -> list[float]:
    """The values, weighted with the softmax of the scaled and masked scores."""
    scores = [
        sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) + m
        for key, m in zip(keys, mask, strict=True)
    ]
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    total = sum(weights)
    return [sum(w * value[d] for w, value in zip(weights, values, strict=True)) / total for d in range(len(values[0]))]


def kv_head(head: int, num_heads: int, num_kv_heads: int) -> int:
    """Which KV head a query head reads: neighbours share. With 6 heads on 2: 0 0 0 1 1 1."""
    return head // (num_heads // num_kv_heads)
