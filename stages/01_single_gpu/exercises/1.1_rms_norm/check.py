"""RMS norm over rows that differ in length, size and dtype."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {"float32": 1e-4, "float16": 4e-3}  # float16 rounds to 1 part in 2,048, and a right answer may round twice


def cases(rng: random.Random) -> list[Case]:
    """From two numbers to half precision."""
    generator = torch.Generator().manual_seed(rng.getrandbits(31))

    def numbers(*size: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(size, generator=generator) * scale + 0.4 * scale  # a mean that is not zero

    def case(name: str, words: str, x: torch.Tensor, residual: torch.Tensor | None, eps: float) -> Case:
        weight = numbers(x.shape[-1]).to(x.dtype)
        return Case(name, words, {"x": x, "residual": residual, "weight": weight, "eps": eps})

    two = Case(
        "two numbers",
        "[3, 4] has the mean square 12.5: with weights 1 and 2 the norm is [0.849, 2.263], and the sum is x itself",
        {"x": torch.tensor([[3.0, 4.0]]), "residual": None, "weight": torch.tensor([1.0, 2.0]), "eps": 1e-6},
    )
    return [
        two,
        case("first layer", "each row has its own mean square", numbers(3, 5, scale=2.0), None, 1e-5),
        case("small numbers", "eps counts where the mean square is small", numbers(2, 7, scale=0.1), None, 1e-2),
        case("later layer", "the sum is normalised and comes back too", numbers(3, 7), numbers(3, 7, scale=3.0), 1e-5),
        case(
            "half precision",
            "numbers of several hundred in float16: their squares do not fit into float16, their norm does",
            numbers(2, 9, scale=300.0).half(),
            numbers(2, 9, scale=200.0).half(),
            1e-5,
        ),
    ]


def run(subject: Any, case: Case) -> Any:
    """What the subject's ``add_rms_norm`` returns; it may add in place, so it gets copies."""
    x, residual, weight = (
        None if t is None else t.clone() for t in (case.inputs[k] for k in ("x", "residual", "weight"))
    )
    norm, total = subject().add_rms_norm(x, residual, weight, case.inputs["eps"])
    return {"norm": norm, "sum": total}


def expected(case: Case) -> Any:
    """Row by row from the specification."""
    x, residual, weight = case.inputs["x"], case.inputs["residual"], case.inputs["weight"].tolist()
    others = [None] * len(x) if residual is None else residual.tolist()
    totals = [spec.add(row, other) for row, other in zip(x.tolist(), others, strict=True)]
    norms = [spec.rms_norm(total, weight, case.inputs["eps"]) for total in totals]
    return {"norm": torch.tensor(norms).to(x.dtype), "sum": torch.tensor(totals).to(x.dtype)}
