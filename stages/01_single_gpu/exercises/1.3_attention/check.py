"""Grouped attention over requests of different lengths."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {"float32": 1e-4}


def cases(rng: random.Random) -> list[Case]:
    """From one query to a ragged batch in which heads, groups, queries and keys all differ in number."""
    generator = torch.Generator().manual_seed(rng.getrandbits(31))

    def case(name: str, words: str, heads: int, kv: int, dim: int, spans: list[tuple[int, int]]) -> Case:
        """``spans`` are the half-open intervals of query positions of each request."""
        num_queries, num_keys = max(end - start for start, end in spans), max(end for _, end in spans)
        mask = torch.full((len(spans), num_queries, num_keys), -math.inf)
        for r, (start, end) in enumerate(spans):
            for i in range(num_queries):
                mask[r, i, : min(start + i, end - 1) + 1] = 0.0  # padding repeats the last query
        q = torch.randn(len(spans), num_queries, heads, dim, generator=generator) * 1.5
        k, v = (torch.randn(len(spans), kv, num_keys, dim, generator=generator) for _ in range(2))
        return Case(name, words, {"q": q, "k": k, "v": v, "mask": mask})

    return [
        case("one query", "one query sees three keys, two heads share one KV head", 2, 1, 4, [(2, 3)]),
        case("a prompt", "each query sees the keys up to its own position", 2, 2, 6, [(0, 3)]),
        case("groups", "neighbouring query heads share a KV head: 0 0 0 1 1 1", 6, 2, 5, [(4, 5)]),
        case(
            "ragged",
            "a prompt, a single query and a later piece of a prompt in one batch",
            6,
            3,
            4,
            [(0, 5), (6, 7), (2, 4)],
        ),
    ]


def run(subject: Any, case: Case) -> Any:
    """What ``grouped`` returns."""
    inputs = case.inputs
    return subject.grouped(inputs["q"].clone(), inputs["k"].clone(), inputs["v"].clone(), inputs["mask"].clone())


def expected(case: Case) -> Any:
    """Every head of every query from the specification."""
    q, k, v, mask = (case.inputs[name].tolist() for name in ("q", "k", "v", "mask"))
    num_heads, num_kv_heads = len(q[0][0]), len(k[0])
    rows = []
    for r, queries in enumerate(q):
        rows.append([])
        for i, heads in enumerate(queries):
            out: list[float] = []
            for h, query in enumerate(heads):
                g = spec.kv_head(h, num_heads, num_kv_heads)
                out += spec.attend(query, k[r][g], v[r][g], mask[r][i])
            rows[r].append(out)
    return torch.tensor(rows)
