"""Which planted mistake a learner made.

Owns the rule: if the learner's answers equal a planted mistake's wherever that differs from what is expected, the
learner is told what its author knows of it. The text of the code is never looked at. Does not run anything.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Raised, Tolerance, first_difference


@dataclass(frozen=True)
class Advice:
    """What is known of a mistake."""

    name: str  # wrong_neighbours
    idea: str  # the misconception, one line
    text: str  # what to do about it


def read_advice(path: Path) -> Advice:
    """The docstring of a ``wrong_*.py``: its first line is the misconception, the rest the advice.

    Raises:
        ValueError: it does not have both.
    """
    idea, _, text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")
    if not idea.strip() or not text.strip():
        raise ValueError(f"{path}: its docstring must be the misconception in a line, and then the advice")
    return Advice(path.stem, idea.strip(), inspect.cleandoc(text).strip())


def recognise(
    answers: Sequence[Any], expected: Sequence[Any], mistakes: Mapping[str, Sequence[Any]], tolerance: Tolerance
) -> str | None:
    """The name of the mistake whose answers are the learner's; ``None`` if it is another one.

    All sequences have an entry a case. A mistake qualifies if the learner's answer equals its own in every case where
    it is wrong, the learner's first wrong case among them. One that explains all of the answers goes first, then the
    one that explains the most cases.
    """
    differs = [not agree(answer, right, tolerance) for answer, right in zip(answers, expected, strict=True)]
    if True not in differs:
        return None
    first = differs.index(True)
    found: list[tuple[bool, int, str]] = []
    for name, wrong_answers in mistakes.items():
        wrong = [i for i, answer in enumerate(wrong_answers) if not agree(answer, expected[i], tolerance)]
        if first in wrong and all(agree(answers[i], wrong_answers[i], tolerance) for i in wrong):
            found.append((sum(differs) == len(wrong), len(wrong), name))
    return max(found)[2] if found else None


def agree(got: Any, wanted: Any, tolerance: Tolerance) -> bool:
    """Whether two answers are the same; two that raised are, if they raised the same kind of error."""
    if isinstance(got, Raised) or isinstance(wanted, Raised):
        return bool(got == wanted)
    return first_difference(got, wanted, tolerance) is None
