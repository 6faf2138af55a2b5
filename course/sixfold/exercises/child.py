"""The process that runs a learner's code: ``python -m sixfold.exercises.child FOLDER FILE PIPE SECONDS``.

Owns what is run on which inputs. It tells its parent what it is at, so that the parent can say where an endless loop
was, and in the end what it found: lines of JSON on the pipe. It is started by ``runner`` and dies with the time limit.

    {"at": "start"}   {"at": "case", "place": 1, "num": 5, "name": …, "words": …} …   {"found": {…}}
    and after a failure {"at": "advice"}   {"found": {…}}
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sixfold.exercises import faults
from sixfold.exercises.advice import read_advice, recognise
from sixfold.exercises.catalog import Exercise, load_exercise
from sixfold.exercises.checking import Case, Raised, Tolerance, first_difference, inputs_in_words
from sixfold.exercises.importer import load_file
from sixfold.exercises.limits import limit_memory, limit_time
from sixfold.exercises.outcome import MOST_OUTPUT, Finding
from sixfold.exercises.signatures import misfit
from sixfold.exercises.store import shown_path
from sixfold.exercises.stub import NotAttempted
from sixfold.interpreter import interpret_without_gpu

SEED = 20250806  # of every check: the inputs are the same each time
Tell = Callable[..., None]


def main(folder: str, file: str, pipe: str, seconds: str) -> None:
    """Check ``file`` against the exercise in ``folder``; messages go to the file descriptor ``pipe``.

    ``seconds`` of computing end the process, should the parent be gone.
    """
    limit_time(int(seconds))
    with os.fdopen(int(pipe), "w", encoding="utf-8") as out:

        def tell(**message: Any) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        torch.set_num_threads(1)
        exercise = load_exercise(Path(folder))
        if exercise.kernel:
            interpret_without_gpu()
        check = load_file(exercise.folder / "check.py")
        importlib.import_module(exercise.module)
        limit_memory()
        tell(at="start")
        sys.stdout = sys.stderr = Shortening(sys.stdout)
        tell(found=asdict(examine(exercise, check, Path(file), tell)))
    os._exit(0)  # threads that the code left behind do not keep the process


class Shortening(io.TextIOBase):
    """Passes the beginning of a text on, and forgets the rest: a loop that prints must not fill the disk."""

    def __init__(self, stream: Any, limit: int = 2 * MOST_OUTPUT) -> None:
        self._stream = stream
        self._left = limit

    def write(self, text: str) -> int:
        """Take in all of ``text``."""
        if self._left > 0:
            self._stream.write(text[: self._left])
            self._stream.flush()
            self._left -= len(text)
        return len(text)


def examine(exercise: Exercise, check: ModuleType, path: Path, tell: Tell) -> Finding:
    """Import the file, run it on every case until one fails, and see whether the mistake is a known one."""
    shown = shown_path(path)
    try:
        theirs = load_file(path, exercise.module_name)
    except NotAttempted:
        return Finding("not attempted", f"{shown} runs a body that is still to be written when it is imported")
    except BaseException as error:
        return Finding("error", faults.headline(error), where=faults.where(error, path, shown))
    if problem := misfit(exercise, importlib.import_module(exercise.module), theirs):
        return Finding("error", problem)

    subject, expected = getattr(theirs, exercise.name), [check.expected(case) for case in fresh_cases(check)]
    finding, answers = first_failure(exercise, check, path, subject, expected, tell)
    if finding.status in ("pass", "not attempted"):
        return finding
    tell(found=asdict(finding))  # stands, should what follows not come to an end
    tell(at="advice")
    answers += [run_case(check, subject, case)[0] for case in fresh_cases(check)[len(answers) :]]
    return with_advice(exercise, check, finding, answers, expected)


def first_failure(
    exercise: Exercise, check: ModuleType, path: Path, subject: Any, expected: list[Any], tell: Tell
) -> tuple[Finding, list[Any]]:
    """The first case that goes wrong, if any, and the answers up to it."""
    cases, answers = fresh_cases(check), []
    # Inputs are shown from a second set, since the code may write into the first.
    for place, (case, untouched) in enumerate(zip(cases, fresh_cases(check), strict=True), start=1):
        tell(at="case", place=place, num=len(cases), name=case.name, words=case.words)
        answer, error = run_case(check, subject, case)
        answers.append(answer)
        if isinstance(error, NotAttempted):
            name = faults.innermost(error, path) or exercise.blanks[0]
            return Finding("not attempted", f"`{name}` in {shown_path(path)} is still to be written"), answers
        found = Finding(
            "fail", "", case.name, place, len(cases), expected=case.words, inputs=inputs_in_words(untouched.inputs)
        )
        if error is not None:
            where = faults.where(error, path, shown_path(path))
            where = where or "(raised while the check used what your code had returned)"
            return replace(found, status="error", headline=faults.headline(error), where=where), answers
        if difference := first_difference(answer, expected[place - 1], tolerance_of(check)):
            return replace(found, difference=difference), answers
    return Finding("pass", num_cases=len(cases)), answers


def with_advice(
    exercise: Exercise, check: ModuleType, finding: Finding, answers: list[Any], expected: list[Any]
) -> Finding:
    """``finding`` with what is known of the mistake, if it is one of the planted ones."""
    mistakes = {path.stem: planted_answers(exercise, check, path) for path in exercise.wrongs}
    name = recognise(answers, expected, mistakes, tolerance_of(check))
    if name is None:
        return finding
    advice = read_advice(exercise.folder / f"{name}.py")
    return replace(finding, mistake=name, idea=advice.idea, advice=advice.text)


def planted_answers(exercise: Exercise, check: ModuleType, path: Path) -> list[Any]:
    """What a planted mistake answers in every case."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        subject = getattr(load_file(path, f"{exercise.module_name}_{path.stem}"), exercise.name)
        return [run_case(check, subject, case)[0] for case in fresh_cases(check)]


def fresh_cases(check: ModuleType) -> list[Case]:
    """The cases, made anew: nobody sees what another one wrote into their inputs."""
    torch.manual_seed(SEED)
    cases: list[Case] = check.cases(random.Random(SEED))
    return cases


def tolerance_of(check: ModuleType) -> Tolerance:
    """How far answers may lie apart."""
    tolerance: Tolerance = getattr(check, "TOLERANCE", 1e-5)
    return tolerance


def run_case(check: ModuleType, subject: Any, case: Case) -> tuple[Any, BaseException | None]:
    """The answer, or ``Raised`` and the error."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    try:
        return check.run(subject, case), None
    except BaseException as error:  # SystemExit, too, is an answer like any other
        error = faults.root(error)
        return Raised(type(error).__name__), error


if __name__ == "__main__":
    main(*sys.argv[1:])
