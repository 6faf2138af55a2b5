"""What is asked of ``slot_mapping``: the right row, the right block, the right offset, and enough bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {}


def cases(rng: random.Random) -> list[Case]:
    """From one block to a mixed batch; block ids are never in order, block sizes never divide the lengths."""
    return [
        Case("one block", "the request's only block is number 2, so its first token lies in slot 2 * 4",
             _inputs([[2]], [(0, [0, 1, 2])], block_size=4)),
        Case("three blocks", "blocks in the order of the table, not of memory: 7, then 2, then 9",
             _inputs([[7, 2, 9]], [(0, list(range(10)))], block_size=4)),
        Case("two requests", "each token looks into the row of its own request, at its own position",
             _inputs([[5, 1], [0, 6]], [(0, [0, 1, 2, 3]), (1, [2, 3, 4])], block_size=3)),
        Case("a step of decodes", "one token each, far into its request",
             _inputs([[3, 8, 4], [6, 0, 0], [1, 7, 2]], [(0, [13]), (1, [2]), (2, [10])], block_size=5)),
        Case("a mixed step", "a chunk from the middle of a prompt between decodes, requests in any order",
             _mixed(rng, block_size=7)),
        Case("blocks of one token", "the smallest block: the slot is the block", _mixed(rng, block_size=1)),
        Case("a huge cache", "block ids are int32, slots do not fit into it",
             _inputs([[3, 99_000_001], [12, 150_000_000]], [(0, [50, 3]), (1, [31, 32])], block_size=32,
                     dtype=torch.int32)),
    ]  # fmt: skip


def run(subject: Callable[..., torch.Tensor], case: Case) -> Any:
    """What the subject makes of the case."""
    return subject(**case.inputs)


def expected(case: Case) -> Any:
    """What is right."""
    return spec.slots_of(**case.inputs)


def _mixed(rng: random.Random, block_size: int) -> dict[str, Any]:
    """Four requests of different lengths, over blocks in random order; rows end in padding."""
    lengths = [rng.randint(3, 30) for _ in range(4)]
    free = rng.sample(range(200), 130)
    rows = [[free.pop() for _ in range(-(-length // block_size))] for length in lengths]
    width = max(map(len, rows))
    table = [row + [0] * (width - len(row)) for row in rows]
    parts = []
    for row in rng.sample(range(4), 4):
        first = rng.randrange(lengths[row])
        parts.append((row, list(range(first, rng.randint(first + 1, lengths[row])))))
    return _inputs(table, parts, block_size)


def _inputs(
    table: list[list[int]], parts: list[tuple[int, list[int]]], block_size: int, dtype: torch.dtype = torch.int64
) -> dict[str, Any]:
    """``parts`` are (row, its positions in this step), behind each other."""
    return {
        "block_table": torch.tensor(table, dtype=dtype),
        "request": torch.tensor([row for row, positions in parts for _ in positions]),
        "positions": torch.tensor([position for _, positions in parts for position in positions]),
        "block_size": block_size,
    }
