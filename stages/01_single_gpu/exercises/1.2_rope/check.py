"""What is asked of ``apply_rope``: the right pairs, the right direction, the right precision."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

# A difference counts above tolerance * (1 + |expected|); in bfloat16 two right roundings may differ by a last digit.
TOLERANCE = {"float32": 1e-5, "bfloat16": 5e-3}


def cases(rng: random.Random) -> list[Case]:
    """From one pair to several heads in bfloat16; the numbers are never symmetric, the positions never in order."""
    return [
        Case("one pair", "the pair (3, 1) turned by a quarter of a circle becomes (-1, 3)",
             {"x": torch.tensor([[[3.0, 1.0]]]), "cos": torch.tensor([[0.0]]), "sin": torch.tensor([[1.0]])}),
        Case("two pairs", "numbers 0 and 2 turn by one angle, numbers 1 and 3 by another",
             _inputs(rng, positions=[1], heads=1, dim=4)),
        Case("three tokens", "each token turns by the angles of its own position, the same for all heads",
             _inputs(rng, positions=[7, 0, 2], heads=2, dim=6)),
        Case("more heads than tokens", "the rows of cos and sin belong to tokens, not to heads",
             _inputs(rng, positions=[5, 11], heads=5, dim=10)),
        Case("bfloat16", "computed in float32 and rounded once, although x and the result are bfloat16",
             _inputs(rng, positions=[3, 900, 41, 7], heads=5, dim=16, scale=100.0, dtype=torch.bfloat16)),
    ]  # fmt: skip


def run(subject: Callable[..., torch.Tensor], case: Case) -> Any:
    """What the subject makes of the case."""
    return subject(**case.inputs)


def expected(case: Case) -> Any:
    """What is right."""
    return spec.rotated(**case.inputs)


def _inputs(
    rng: random.Random,
    positions: Sequence[int],
    heads: int,
    dim: int,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    numbers = [round(rng.uniform(-scale, scale), 2) for _ in range(len(positions) * heads * dim)]
    angles = torch.tensor(
        [[position * math.pow(100.0, -2 * i / dim) for i in range(dim // 2)] for position in positions]
    )
    x = torch.tensor(numbers).reshape(len(positions), heads, dim).to(dtype)
    return {"x": x, "cos": angles.cos(), "sin": angles.sin()}
