"""Joining the splits of requests of different lengths."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage2.kernels.merge_splits import EMPTY, merge_splits

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {"float32": 1e-5}
TILE = 16
UNTOUCHED = 7.0  # what the result holds before, and where nothing is to be joined


def cases(rng: random.Random) -> list[Case]:
    """From two splits to queries that see nothing of a split; unused splits are poison, from the third case on."""
    generator = torch.Generator().manual_seed(rng.getrandbits(31))

    def case(name: str, words: str, lens: list[int], splits: int, dim: int, heads: int = 1, **given: Any) -> Case:
        partial = torch.full((len(lens), heads, splits, dim), given.get("unused", math.nan))
        lse = torch.full((len(lens), heads, splits), given.get("unused", math.nan))
        for r, length in enumerate(lens):
            sizes = split_sizes(length, splits)
            partial[r, :, : len(sizes)] = torch.randn(heads, len(sizes), dim, generator=generator)
            noise = torch.randn(heads, len(sizes), generator=generator) * 1.5
            lse[r, :, : len(sizes)] = torch.tensor(sizes).log2() + noise + given.get("larger_by", [0.0] * len(lens))[r]
        for place in given.get("empty", []):
            partial[place], lse[place] = 0.0, EMPTY.value
        return Case(name, words, {"partial": partial, "lse": lse, "seq_lens": torch.tensor(lens), "tile": TILE})

    return [
        case("two splits", "32 keys in the first split, 1 in the second", [33], 2, 2),
        case("three splits", "the weight of a split is 2 to its lse", [90], 3, 5, heads=2),
        case("unused splits", "what a request does not use is never read", [33, 200, 40], 5, 5, heads=3),
        case(
            "extreme scores",
            "2 to the lse is too small for a float32, in the second request too large",
            *([70, 100], 4, 4),
            larger_by=[-300.0, 300.0],
        ),
        case(
            "a split that a query sees nothing of",
            "its lse is EMPTY and it counts nothing; a request of one split keeps what is there",
            *([100, 20, 150], 4, 6, 2),
            empty=[(0, 0, 0), (2, 1, 3)],
        ),
    ]


def split_sizes(length: int, splits: int) -> list[int]:
    """Keys of each split that a request of ``length`` keys uses: whole tiles, two at least."""
    size = TILE * max(2, math.ceil(math.ceil(length / TILE) / splits))
    return [min(size, length - start) for start in range(0, length, size)]


def with_room(x: torch.Tensor) -> torch.Tensor:
    """A copy of ``x`` with zeros behind it: who reads too far reads numbers, not another program's memory."""
    return torch.cat([x.flatten(), torch.zeros(256)])[: x.numel()].view(x.shape)


def run(subject: Any, case: Case) -> Any:
    """What stands in the result after the launch."""
    inputs = case.inputs
    partial, lse = with_room(inputs["partial"]), with_room(inputs["lse"])
    out = torch.full((*partial.shape[:2], partial.shape[3]), UNTOUCHED)
    return merge_splits(partial, lse, inputs["seq_lens"].clone(), out, tile=inputs["tile"], kernel=subject)


def expected(case: Case) -> Any:
    """Every head of every request from the specification."""
    partial, lse = case.inputs["partial"], case.inputs["lse"]
    out = torch.full((*partial.shape[:2], partial.shape[3]), UNTOUCHED)
    for r, length in enumerate(case.inputs["seq_lens"].tolist()):
        used = len(split_sizes(length, lse.shape[2]))
        for h in range(lse.shape[1]):
            if used > 1:
                out[r, h] = torch.tensor(spec.join(partial[r, h, :used].tolist(), lse[r, h, :used].tolist()))
    return out
