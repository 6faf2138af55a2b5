"""The learner's versions inside the engine.

Owns which parts of a stage are the learner's: those whose file passed its check exactly as it is now. Everything else
is the reference, so that nobody is blocked. Workers are sent paths, never classes.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.exercises import store
from sixfold.exercises.catalog import Exercise, all_exercises
from sixfold.exercises.importer import load_file
from sixfold.exercises.runner import check
from sixfold.interpreter import interpret_without_gpu

YOURS, REFERENCE = "yours", "reference"
PLAIN = ("rotate", "attention")  # parts in torch whose place a stage's kernels take


@dataclass(frozen=True)
class PartState:
    """Whose version of a part runs, and why."""

    part: str
    owner: str  # "yours" or "reference"
    exercise: Exercise
    note: str  # in words

    @property
    def path(self) -> Path:
        """The learner's file, whether it is used or not."""
        return store.exercise_file(self.exercise)


def survey(stage: int, folders: Sequence[Path] | None = None, backend: str = "auto") -> list[PartState]:
    """The parts of a stage that have an exercise, there or in an earlier stage, in the order of the exercises.

    A file that changed since its last check is checked again here, which takes some seconds. ``backend`` is the
    engine's ``attention_backend``: kernels and the plain parts whose place they take cannot run together.
    """
    states: dict[str, PartState] = {}
    for exercise in all_exercises(folders):
        if _fits(exercise, stage):
            state = _state(exercise)
            if exercise.part not in states or state.owner == YOURS:
                states[exercise.part] = state
    return _that_fit_together(list(states.values()), backend)


def my_parts(stage: int, folders: Sequence[Path] | None = None, backend: str = "auto") -> tuple[Any, dict[str, str]]:
    """The stage's ``Parts`` with the learner's versions in it, and part → "yours" or "reference"."""
    states = survey(stage, folders, backend)
    return parts_from(stage, paths_of(states), folders), owners_of(states)


def owners_of(states: Sequence[PartState]) -> dict[str, str]:
    """Part → "yours" or "reference", as the server's page shows it."""
    return {state.part: state.owner for state in states}


def paths_of(states: Sequence[PartState]) -> dict[str, str]:
    """Part → file of the learner's versions: what a spawned worker is sent."""
    return {state.part: str(state.path) for state in states if state.owner == YOURS}


def parts_from(stage: int, paths: Mapping[str, str], folders: Sequence[Path] | None = None) -> Any:
    """The stage's ``Parts`` with the versions in ``paths`` (part → file) in it.

    Raises:
        ValueError: a file belongs to no exercise of that part, or does not define its symbol.
    """
    parts = importlib.import_module(f"stage{stage}.build").Parts()
    exercises = {(e.part, e.module_name): e for e in all_exercises(folders) if _fits(e, stage)}
    for part, path in paths.items():
        exercise = exercises.get((part, Path(path).stem))
        if exercise is None:
            raise ValueError(f"{path} belongs to no exercise of stage {stage} that makes the part {part!r}")
        if exercise.kernel:
            interpret_without_gpu()
        module = load_file(Path(path), exercise.module_name)
        if not hasattr(module, exercise.name):
            raise ValueError(f"{path} does not define {exercise.name}: `sixfold check {exercise.id}` says more")
        parts = dataclasses.replace(parts, **{part: getattr(module, exercise.name)})
    return parts


def banner(states: Sequence[PartState]) -> str:
    """Whose code runs, a line a part."""
    if not states:
        return "this stage has no exercises here: all parts are the reference's"
    width = max(len(state.part) for state in states)
    mine = sum(state.owner == YOURS for state in states)
    lines = [f"{mine} of {len(states)} parts are yours:"]
    lines += [
        f"  {'●' if state.owner == YOURS else '○'} {state.part:{width}}  {state.owner:{len(REFERENCE)}}  {state.note}"
        for state in states
    ]
    return "\n".join(lines)


def _fits(exercise: Exercise, stage: int) -> bool:
    """Whether the exercise's part is one of ``stage`` and still the same there as in the exercise's own stage."""
    if exercise.stage == stage:
        return True
    if exercise.stage > stage:
        return False
    here, there = (importlib.import_module(f"stage{n}.build").Parts() for n in (stage, exercise.stage))
    return hasattr(here, exercise.part) and getattr(here, exercise.part) is getattr(there, exercise.part)


def _that_fit_together(states: list[PartState], backend: str) -> list[PartState]:
    """``states`` without the learner's kernels, or without the plain parts that they replace."""
    kernels = [state for state in states if state.exercise.kernel and state.owner == YOURS]
    if backend == "torch":
        left_out, note = kernels, "kernels run with --attention-backend triton"
    else:
        left_out = [state for state in states if kernels and state.part in PLAIN and state.owner == YOURS]
        note = "your kernels run in its place; --attention-backend torch takes yours"
    return [dataclasses.replace(state, owner=REFERENCE, note=note) if state in left_out else state for state in states]


def _state(exercise: Exercise) -> PartState:
    path = store.exercise_file(exercise)
    shown = store.shown_path(path)
    if not path.is_file():
        return PartState(exercise.part, REFERENCE, exercise, f"exercise {exercise.id} is not attempted yet")
    content = store.digest(exercise, path)
    record = store.record_of(exercise)
    if content in record.passed:
        return PartState(exercise.part, YOURS, exercise, shown)
    status = record.status if record.digest == content else check(exercise).status
    if status == "pass":
        return PartState(exercise.part, YOURS, exercise, f"{shown}, checked again just now")
    if status == "not attempted":
        return PartState(exercise.part, REFERENCE, exercise, f"exercise {exercise.id} is not attempted yet")
    return PartState(
        exercise.part, REFERENCE, exercise, f"{shown} does not pass: `sixfold check {exercise.id}` says why"
    )
