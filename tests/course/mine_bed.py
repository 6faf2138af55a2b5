"""A learner's file in an engine: the steps that every stage's test of that takes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sixfold.exercises import mine
from sixfold.exercises.catalog import Exercise
from sixfold.exercises.stub import NotAttempted, make_solution, make_stub


def with_text(stage: int, exercise: Exercise, text: str, folder: Path) -> Any:
    """The stage's parts with ``text`` as the learner's file of ``exercise``."""
    path = folder / f"{exercise.module_name}.py"
    path.write_text(text, encoding="utf-8")
    return mine.parts_from(stage, {exercise.part: str(path)})


def solved(stage: int, exercise: Exercise, folder: Path) -> Any:
    """The parts with the solved exercise, which is not the engine's own object."""
    parts = with_text(stage, exercise, make_solution(exercise), folder)
    own = getattr(importlib.import_module(exercise.module), exercise.name)
    assert getattr(parts, exercise.part) is not own
    return parts


def meets_the_blank(stage: int, exercise: Exercise, folder: Path, answer: Callable[[Any], Any]) -> None:
    """With the stub, ``answer`` (from parts to one request's output) ends with the words of an empty body."""
    parts = with_text(stage, exercise, make_stub(exercise), folder)
    try:
        message = str(answer(parts).outputs[0].error)
    except NotAttempted as error:
        message = str(error)
    assert f"exercise {exercise.id}: this body is still to be written" in message
