"""The functions of the course in a notebook.

Owns how they answer: in words, printed at once, and never with a traceback for wrong usage. What they say comes from
``sixfold.exercises``, so the command line says the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from IPython.core.getipython import get_ipython

from sixfold.errors import UsageError
from sixfold.exercises import lesson, mine, predictions, quizzes, runner
from sixfold.exercises import progress as progress_table
from sixfold.exercises.catalog import find
from sixfold.exercises.outcome import Outcome
from sixfold.exercises.stub import make_stub
from sixfold.stages import available, stage_module

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def _helpful(function: Callable[Given, Answer]) -> Callable[Given, Answer | None]:
    """Print a usage error instead of raising it: a notebook runs on."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Answer | None:
        try:
            return function(*args, **kwargs)
        except UsageError as error:
            print(error)
            return None

    return call


@_helpful
def check(exercise_id: str, time_limit: float = runner.TIME_LIMIT) -> Outcome:
    """Check your version: ``check("1.2")``. The result's ``status`` is pass, fail, error or not attempted."""
    outcome = runner.check(str(exercise_id), time_limit=time_limit)
    print(outcome)
    return outcome


@_helpful
def hint(exercise_id: str, level: int | None = None) -> None:
    """Print the hint of a level from 1 to 3, or the next one: ``hint("1.2")``."""
    print(lesson.hint(find(str(exercise_id)), level))


@_helpful
def show(exercise_id: str) -> Any:
    """Draw your own result on a small input; the reference's where you have none yet."""
    drawing = lesson.draw(find(str(exercise_id)))
    print(drawing.note)
    return drawing.figure


@_helpful
def solution(exercise_id: str, sure: bool = False) -> None:
    """Print the engine's own version; before a pass only with ``sure=True``."""
    exercise = find(str(exercise_id))
    if not (sure or lesson.solution_is_open(exercise)):
        print(f'{exercise.id} has not passed yet. Show the solution anyway: solution("{exercise.id}", sure=True)')
        return
    print(lesson.solution(exercise))


@_helpful
def reset(exercise_id: str) -> None:
    """Start an exercise anew; your version is kept under a dated name. A cell with the stub is offered below."""
    exercise = find(str(exercise_id))
    print(lesson.reset(exercise))
    shell = get_ipython()
    if shell is not None:
        shell.set_next_input(f"%%exercise {exercise.id}\n{make_stub(exercise)}", replace=False)


@_helpful
def progress() -> None:
    """Print where you stand."""
    print(progress_table.progress())


@_helpful
def predict(prediction_id: str, value: Any, measured: Any = None, unit: str = "") -> None:
    """Remember what you expect, a number, ``(low, high)`` or a word; with ``measured``, compare at once."""
    print(predictions.predict(prediction_id, value))
    if measured is not None:
        print(predictions.reveal(prediction_id, measured, unit))


@_helpful
def reveal(prediction_id: str, measured: Any, unit: str = "") -> None:
    """Compare a measurement with what you had predicted."""
    print(predictions.reveal(prediction_id, measured, unit))


@_helpful
def quiz(quiz_id: str) -> None:
    """Print the questions of a notebook's quiz."""
    print(quizzes.ask(quiz_id))


@_helpful
def answer(quiz_id: str, number: int, choice: str) -> None:
    """Answer a question: ``answer("01a", 1, "b")``; every option has an explanation."""
    print(quizzes.answer(quiz_id, number, choice))


@_helpful
def banner(stage: int | None = None) -> None:
    """Print whose version of each part runs, yours or the reference's."""
    print(mine.banner(mine.survey(_stage(stage))))


def llm(model: str | None = None, *, stage: int | None = None, **settings: Any) -> Any:
    """The stage's ``LLM`` with your parts in it (the highest stage here, unless one is named); says whose they are.

    Raises:
        ValueError: as ``LLM`` does.
    """
    number = _stage(stage)
    states = mine.survey(number, backend=settings.get("attention_backend", "auto"))
    print(mine.banner(states))
    parts = mine.parts_from(number, mine.paths_of(states))
    return stage_module(number).LLM(model, parts=parts, **settings)


def _stage(stage: int | None) -> int:
    here = available()
    if stage is None:
        return here[-1]
    if stage not in here:
        raise UsageError(f"there is no stage {stage} here; present: {', '.join(map(str, here))}")
    return stage
