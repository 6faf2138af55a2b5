"""``sixfold solution``: print the engine's own version of an exercise.

Owns the question that is asked before a pass.

vLLM: no counterpart.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sixfold.errors import UsageError
from sixfold.exercises import lesson
from sixfold.exercises.catalog import Exercise, find


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; its flags do not depend on ``argv``."""
    parser = argparse.ArgumentParser(
        prog="sixfold solution",
        description="Print the engine's own version of what an exercise leaves blank. Your file stays as it is.",
        allow_abbrev=False,
    )
    parser.add_argument("id", metavar="ID", help="an exercise, such as 1.2")
    parser.add_argument("--yes", action="store_true", help="do not ask, even if the exercise has not passed yet")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the solution; 1 when the learner would rather not see it.

    Raises:
        UsageError: it has not passed, and nobody can be asked.
    """
    exercise = find(options.id)
    if not (options.yes or lesson.solution_is_open(exercise) or _confirmed(exercise)):
        return 1
    print(lesson.solution(exercise))
    return 0


def _confirmed(exercise: Exercise) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"{exercise.id} has not passed yet: add --yes to see the solution anyway")
    return input(f"{exercise.id} has not passed yet. Show the solution anyway? [y/N] ").strip().lower() in ("y", "yes")
