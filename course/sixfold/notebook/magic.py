"""The cell magic ``%%exercise ID``: the cell becomes a file, and the file's names become the notebook's.

Owns the saving. The same file is then what the check, the engine, spawned workers and the demo server load. An error in
the cell is shown in the learner's own lines and does not stop the notebook: the reference takes the part's place.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from sixfold.errors import UsageError
from sixfold.exercises import faults, store
from sixfold.exercises.catalog import Exercise, find
from sixfold.exercises.importer import load_file
from sixfold.exercises.stub import NotAttempted, defined_names, make_stub
from sixfold.interpreter import interpret_without_gpu


def register(shell: Any) -> None:
    """Teach a notebook's shell the magic."""

    def exercise(line: str, cell: str) -> None:
        """Save the cell as your version of an exercise: ``%%exercise 1.2``."""
        print(save_cell(shell, line, cell))

    shell.register_magic_function(exercise, magic_kind="cell")


def save_cell(shell: Any, line: str, cell: str) -> str:
    """Save and import a cell, put its names into ``shell``; returns what to tell the learner."""
    try:
        exercise = find(line.strip().strip("\"'"))
        stub = make_stub(exercise)
    except UsageError as error:
        return str(error)
    text = cell.rstrip() + "\n"
    path = store.exercise_file(exercise)
    notes = []
    if text == stub.rstrip() + "\n" and _holds_work(path, stub):
        # A notebook that is opened anew and run from its top has the stub again: it must not undo what was solved.
        notes.append(f"this cell is the empty stub, so {store.shown_path(path)} keeps your version;")
        notes.append(f'reset("{exercise.id}") would start anew')
    else:
        path, copy = store.write_file(exercise, text)
        notes.append(f"saved as {store.shown_path(path)} (yours)")
        if copy is not None:
            notes.append(f"the version that passed is kept in {store.shown_path(copy)}")
    return "\n".join([*notes, _load(shell, exercise, path)])


def _holds_work(path: Path, stub: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8", errors="replace").rstrip() != stub.rstrip()


def _load(shell: Any, exercise: Exercise, path: Path) -> str:
    if exercise.kernel:
        interpret_without_gpu()
    try:
        module = load_file(path, exercise.module_name)
    except NotAttempted as error:
        return f"○ {error}"
    except Exception as error:
        where = faults.where(error, path, store.shown_path(path))
        return f"✗ it cannot be imported: {faults.headline(error)}\n{where}\nmend it, and run the cell again"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [name for node in tree.body for name in defined_names(node) if hasattr(module, name)]
    shell.push({name: getattr(module, name) for name in names})
    return f'next: check("{exercise.id}")'
