"""Where the learner stands: exercises, predictions, quizzes.

Owns the table. Reads what is remembered and checks nothing, so it is quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sixfold.exercises import predictions, quizzes, store
from sixfold.exercises.catalog import Exercise, all_exercises
from sixfold.exercises.outcome import MARKS

EDITED = "edited since its check"


def progress(folders: Sequence[Path] | None = None) -> str:
    """The whole report."""
    exercises = all_exercises(folders)
    if not exercises:
        return "no exercises are here: they come with the repository, not with the installed package"
    rows = [(exercise, state_of(exercise)) for exercise in exercises]
    width = max(len(exercise.title) for exercise in exercises)
    lines = [_row(exercise, state, width) for exercise, state in rows]
    core = [state for exercise, state in rows if exercise.track == "core"]
    lines.append(f"{core.count('pass')} of {len(core)} core exercises pass")
    return "\n".join([*lines, *filter(None, (predictions.summary(), quizzes.summary()))])


def state_of(exercise: Exercise) -> str:
    """The status of the learner's file as it is now, as far as it is known without a check."""
    path = store.exercise_file(exercise)
    record = store.record_of(exercise)
    if not path.is_file():
        return "not attempted"
    content = store.digest(exercise, path)
    if content in record.passed:
        return "pass"
    if record.digest == content:
        return record.status
    return EDITED if record.status else "not checked yet"


def _row(exercise: Exercise, state: str, width: int) -> str:
    record = store.record_of(exercise)
    notes = [f"{record.attempts} checked" if record.attempts else "", f"{record.hints} hints" if record.hints else ""]
    notes.append("solution seen" if record.solution_seen else "")
    stretch = "" if exercise.track == "core" else " (stretch)"
    said = " · ".join([state + stretch, *(note for note in notes if note)])
    return f"{MARKS.get(state, '·')} {exercise.id:4} {exercise.title:{width}}  {exercise.minutes:3} min  {said}"
