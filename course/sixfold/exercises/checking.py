"""What an exercise's ``check.py`` is made of: cases, and the comparison of two answers.

Owns how a difference is found and put into words. Answers are plain data: tensors, numbers, strings, ``None``, and
lists, tuples and dicts of them. Does not know processes, files or exercises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Tolerance = float | Mapping[str, float]  # one for all, or one a dtype: {"float32": 1e-5, "bfloat16": 8e-3}

MOST_SHOWN = 24  # numbers of a tensor that are printed in full
MOST_LETTERS = 600  # of one input


@dataclass(frozen=True)
class Case:
    """One question: a short ``name``, what is expected in ``words``, and the inputs by name."""

    name: str
    words: str
    inputs: dict[str, Any]


@dataclass(frozen=True)
class Raised:
    """Stands for an answer where the code raised instead of answering."""

    kind: str


def first_difference(got: Any, wanted: Any, tolerance: Tolerance, place: str = "result") -> str | None:
    """Where ``got`` first differs from ``wanted``, as a sentence; ``None`` if they agree.

    Numbers agree when they differ by at most ``tolerance * (1 + |wanted|)``; infinities and not-a-numbers agree with
    their like. Lists and tuples are the same thing here, and so are a number and a tensor without axes.
    """
    if isinstance(wanted, torch.Tensor) and wanted.ndim == 0 and not isinstance(got, torch.Tensor):
        wanted = wanted.item()
    if isinstance(got, torch.Tensor) and got.ndim == 0 and isinstance(wanted, (bool, int, float)):
        got = got.item()
    if got is None and wanted is not None:
        return f"{place} is None, not {in_words(wanted)}: is a `return` missing?"
    if isinstance(wanted, torch.Tensor):
        return _tensor_difference(got, wanted, tolerance, place)
    if isinstance(wanted, Mapping):
        return _mapping_difference(got, wanted, tolerance, place)
    if isinstance(wanted, (list, tuple)):
        return _sequence_difference(got, wanted, tolerance, place)
    if isinstance(wanted, float) or (isinstance(got, float) and _is_number(wanted)):
        if _is_number(got) and _close(float(got), float(wanted), _limit(tolerance, "float32")):
            return None
        return f"{place} is {in_words(got)}, not {in_words(wanted)}"
    return None if _same(got, wanted) else f"{place} is {in_words(got)}, not {in_words(wanted)}"


def in_words(value: Any) -> str:
    """A value, shortened for a message: a small tensor with its numbers, a large one by its shape and dtype."""
    if isinstance(value, torch.Tensor):
        kind = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
        if value.numel() > MOST_SHOWN:
            return f"a tensor {kind}"
        return f"a tensor {kind} = {_numbers(value.detach().cpu().tolist())}"
    if isinstance(value, Mapping):
        return _shortened("{" + ", ".join(f"{key!r}: {in_words(item)}" for key, item in value.items()) + "}")
    if isinstance(value, (list, tuple)):
        return _shortened("[" + ", ".join(map(in_words, value)) + "]")
    if isinstance(value, float):
        return f"{value:.6g}"
    try:
        return _shortened(repr(value))
    except Exception:  # a learner's __repr__ may fail, too
        return f"an object of type {type(value).__name__}"


def inputs_in_words(inputs: Mapping[str, Any]) -> str:
    """A line an input."""
    return "\n".join(f"    {name} = {in_words(value)}" for name, value in inputs.items())


# --- below: one kind of value each ---------------------------------------------------------------------


def _tensor_difference(got: Any, wanted: torch.Tensor, tolerance: Tolerance, place: str) -> str | None:
    if not isinstance(got, torch.Tensor):
        return f"{place} is {in_words(got)} of type {type(got).__name__}, not {in_words(wanted)}"
    if got.shape != wanted.shape:
        return f"{place} has the shape {list(got.shape)}, not {list(wanted.shape)}"
    if got.dtype != wanted.dtype:
        return f"{place} has the dtype {got.dtype}, not {wanted.dtype}"
    if wanted.numel() == 0:
        return None
    limit = _limit(tolerance, str(wanted.dtype).removeprefix("torch."))
    a, b = got.detach().cpu().double().flatten(), wanted.detach().cpu().double().flatten()
    near = (a - b).abs() <= limit * (1 + b.abs())
    agree = (a == b) | (a.isnan() & b.isnan()) | (near & b.isfinite())
    if bool(agree.all()):
        return None
    wrong = int((~agree).sum())
    first = int((~agree).nonzero()[0])
    where = [int(i) for i in torch.unravel_index(torch.tensor(first), wanted.shape)]
    index = f"[{', '.join(map(str, where))}]" if where else ""
    count = "" if wanted.numel() == 1 else f" ({wrong:,} of {wanted.numel():,} numbers differ)"
    return f"{place}{index} is {_number(float(a[first]), wanted)}, not {_number(float(b[first]), wanted)}{count}"


def _number(value: float, like: torch.Tensor) -> str:
    """As many digits as tell two values apart, and none after the point for whole numbers."""
    if like.dtype.is_floating_point:
        return f"{value:.6g}"
    return str(bool(value)) if like.dtype == torch.bool else f"{value:.0f}"


def _mapping_difference(got: Any, wanted: Mapping[Any, Any], tolerance: Tolerance, place: str) -> str | None:
    if not isinstance(got, Mapping):
        return f"{place} is {in_words(got)}, not a dict"
    for key, item in wanted.items():
        if key not in got:
            return f"{place} has nothing for {key!r}, where {in_words(item)} is expected"
        if found := first_difference(got[key], item, tolerance, _inside(place, key)):
            return found
    extra = [key for key in got if key not in wanted]
    return f"{place} has {in_words(got[extra[0]])} for {extra[0]!r}, where nothing is expected" if extra else None


def _inside(place: str, key: Any) -> str:
    """The name of an entry: a word stands for itself, anything else is an index."""
    if isinstance(key, str) and place == "result":
        return key
    return f"{place}[{key!r}]"


def _sequence_difference(got: Any, wanted: Sequence[Any], tolerance: Tolerance, place: str) -> str | None:
    if not isinstance(got, (list, tuple)):
        return f"{place} is {in_words(got)}, not {in_words(wanted)}"
    for i, (ours, theirs) in enumerate(zip(got, wanted, strict=False)):
        if found := first_difference(ours, theirs, tolerance, f"{place}[{i}]"):
            return found
    if len(got) != len(wanted):
        return f"{place} has the length {len(got)}, not {len(wanted)}: {in_words(got)}, not {in_words(wanted)}"
    return None


def _limit(tolerance: Tolerance, dtype: str) -> float:
    return tolerance.get(dtype, 0.0) if isinstance(tolerance, Mapping) else tolerance


def _close(a: float, b: float, limit: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or (math.isfinite(b) and abs(a - b) <= limit * (1 + abs(b)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(got: Any, wanted: Any) -> bool:
    """Equal and of one kind: True is not 1, and an object whose ``==`` fails is not equal."""
    try:
        return isinstance(got, bool) == isinstance(wanted, bool) and bool(got == wanted)
    except Exception:
        return False


def _numbers(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_numbers, value)) + "]"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 2] + " …"
