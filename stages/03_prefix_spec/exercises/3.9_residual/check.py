"""What is asked of ``draw_residual``: which token a given number leads to."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
Subject = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def cases(rng: random.Random) -> list[Case]:
    """From one number to many rows; probabilities are eighths and sixteenths, which floats hold exactly."""
    return [
        Case("one is missing", "the drafts give too little of token 2 alone, so it is token 2",
             _inputs([[2, 1, 5]], [[3, 3, 2]], [0.3])),
        Case("two are missing", "2/8 are left of token 0 and 1/8 of token 2: two thirds of all numbers lead to 0",
             _inputs([[4, 1, 3]] * 3, [[2, 4, 2]] * 3, [0.25, 0.6, 0.7])),
        Case("little is left", "1/16 of token 1 and 1/16 of token 2, half of all numbers each",
             _inputs([[5, 4, 3, 4]] * 4, [[5, 3, 2, 6]] * 4, [0.1, 0.4, 0.6, 0.9])),
        Case("nothing is left", "p and q are the same: the number decides among the tokens of p",
             _inputs([[2, 3, 2, 1]] * 3, [[2, 3, 2, 1]] * 3, [0.1, 0.4, 0.8])),
        Case("the number 0", "the first token of which something is left, not the first of all",
             _inputs([[1, 0, 3, 4]] * 2, [[1, 2, 1, 4], [2, 2, 2, 2]], [0.0, 0.0])),
        Case("a border", "a number at the border of two parts belongs to the right one",
             _inputs([[3, 1, 3, 1]], [[2, 2, 2, 2]], [0.5])),
        Case("one token", "p has all on token 1, as a request without randomness has it: it is token 1",
             _inputs([[0, 8, 0]] * 2, [[8, 0, 0], [2, 2, 4]], [0.05, 0.95])),
        Case("rows of all kinds", "each row has its own distributions and its own number",
             _inputs([[4, 1, 3], [2, 1, 5], [3, 3, 2]], [[2, 4, 2], [1, 4, 3], [3, 3, 2]], [0.6, 0.9, 0.9])),
        *(Case(f"random {i}", "many rows, numbers well inside the parts", _random(rng, num_reqs, vocab))
          for i, (num_reqs, vocab) in enumerate(((7, 5), (13, 33)))),
    ]  # fmt: skip


def run(subject: Subject, case: Case) -> Any:
    """The tokens, and what they are written in."""
    given = case.inputs
    result = subject(given["target"].clone(), given["draft"].clone(), given["uniform"].clone())
    return {"tokens": result.tolist(), "dtype": str(result.dtype)}


def expected(case: Case) -> Any:
    """What is right."""
    return run(spec.draw_residual, case)


def _random(rng: random.Random, num_reqs: int, vocab: int) -> dict[str, Any]:
    """Distributions in 1024ths, and for each row a number in the middle half of some token's part."""
    target, draft, uniform = [], [], []
    for _ in range(num_reqs):
        p, q = _weights(rng, vocab), _weights(rng, vocab)
        left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
        token = rng.choice([i for i, width in enumerate(left) if width])
        uniform.append((sum(left[:token]) + left[token] * rng.uniform(0.25, 0.75)) / sum(left))
        target.append(p)
        draft.append(q)
    return _inputs(target, draft, uniform)


def _weights(rng: random.Random, vocab: int, total: int = 1024) -> list[int]:
    """``vocab`` numbers, some of them 0, whose sum is ``total``."""
    cuts = sorted(rng.randrange(total) for _ in range(vocab - 1))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]
    rng.shuffle(parts)
    return parts


def _inputs(target: list[list[int]], draft: list[list[int]], uniform: list[float]) -> dict[str, Any]:
    """Weights, whose sum in a row is a power of two, as probabilities."""
    p, q = torch.tensor(target, dtype=torch.float32), torch.tensor(draft, dtype=torch.float32)
    return {
        "target": p / p.sum(dim=1, keepdim=True),
        "draft": q / q.sum(dim=1, keepdim=True),
        "uniform": torch.tensor(uniform, dtype=torch.float64),
    }
