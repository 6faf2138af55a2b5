"""What a learner can ask of an exercise besides a check: a hint, the picture, the solution, a fresh start.

Owns the hint ladder and when a solution opens. Notebook and command line say the same words: they come from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.errors import UsageError
from sixfold.exercises import faults, store
from sixfold.exercises.catalog import Exercise
from sixfold.exercises.importer import load_file
from sixfold.exercises.stub import NotAttempted, make_solution, make_stub
from sixfold.interpreter import interpret_without_gpu


def read_hints(exercise: Exercise) -> list[str]:
    """The texts under ``## 1``, ``## 2``, ``## 3`` of ``hints.md``."""
    text = (exercise.folder / "hints.md").read_text(encoding="utf-8")
    return [part.strip() for part in re.split(r"^## \d+\s*$", text, flags=re.MULTILINE)[1:]]


def hint(exercise: Exercise, level: int | None = None) -> str:
    """The hint of a level from 1, or the next one that has not been opened; the last one again when all are open.

    Raises:
        UsageError: there is no such level.
    """
    hints = read_hints(exercise)
    opened = store.record_of(exercise).hints
    level = min(opened + 1, len(hints)) if level is None else level
    if not 1 <= level <= len(hints):
        raise UsageError(f"exercise {exercise.id} has no hint {level}; there are 1 to {len(hints)}")

    def open_level(record: store.Record) -> None:
        record.hints = max(record.hints, level)

    store.change_record(exercise, open_level)
    after = (
        f'one more helps further: hint("{exercise.id}", {level + 1})'
        if level < len(hints)
        else f'this was the last one; the engine\'s own version: solution("{exercise.id}")'
    )
    return f"hint {level} of {len(hints)} for {exercise.id}, {exercise.title}\n\n{hints[level - 1]}\n\n({after})"


def solution_is_open(exercise: Exercise) -> bool:
    """Whether the learner passed, or has looked before."""
    record = store.record_of(exercise)
    return bool(record.passed) or record.solution_seen


def solution(exercise: Exercise) -> str:
    """The engine's own version of what the stub leaves blank; remembers that it was seen."""

    def seen(record: store.Record) -> None:
        record.solution_seen = True

    store.change_record(exercise, seen)
    return make_solution(exercise)


def reset(exercise: Exercise) -> str:
    """Put the stub in the place of the learner's file, keep a dated copy of that, and say so."""
    path = store.exercise_file(exercise)
    stub = make_stub(exercise)
    copy = store.keep_copy(path) if path.is_file() and path.read_text(encoding="utf-8") != stub else None
    store.write_file(exercise, stub)
    kept = f"; what was there is kept in {store.shown_path(copy)}" if copy else ""
    return f"{store.shown_path(path)} is the stub again{kept}"


@dataclass(frozen=True)
class Drawing:
    """A picture of a result, and whose it is."""

    figure: Any  # matplotlib.figure.Figure
    owner: str  # "yours" or "reference"
    note: str


def draw(exercise: Exercise) -> Drawing:
    """Draw the learner's own result on a small input; the reference's where there is no own one.

    The code runs in this process, without a time limit.
    """
    if exercise.kernel:
        interpret_without_gpu()
    show = load_file(exercise.folder / "show.py").show
    path = store.exercise_file(exercise)
    shown = store.shown_path(path)
    why = f"{exercise.id} is not attempted yet"
    if path.is_file() and not _is_stub(exercise, path):
        try:
            subject = getattr(load_file(path, exercise.module_name), exercise.name)
            return Drawing(show(subject), "yours", f"drawn with your version, {shown}")
        except Exception as wrapped:
            error = faults.root(wrapped)
            if not isinstance(error, NotAttempted):
                why = f"yours stops with {faults.headline(error)}\n{faults.where(error, path, shown)}".rstrip()
    reference = getattr(load_file(_solution_file(exercise)), exercise.name)
    return Drawing(show(reference), "reference", f"drawn with the reference: {why}")


def _is_stub(exercise: Exercise, path: Path) -> bool:
    """Whether nothing was written yet: a compiled kernel could not say so itself."""
    return path.read_text(encoding="utf-8").rstrip() == make_stub(exercise).rstrip()


def _solution_file(exercise: Exercise) -> Path:
    return exercise.folder / "solution.py"
