"""``sixfold check``: run the check of one or more exercises on the learner's files.

Owns the exit code and which exercises are meant. The check itself is ``sixfold.exercises.runner``.

vLLM: no counterpart.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sixfold.errors import UsageError
from sixfold.exercises import runner, store
from sixfold.exercises.catalog import all_exercises, find


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; its flags do not depend on ``argv``."""
    parser = argparse.ArgumentParser(
        prog="sixfold check",
        usage="sixfold check [ID …] [--file FILE] [--time-limit SECONDS]",
        description="Check your versions of exercises, such as 1.2; without an id, all that you have begun.",
        allow_abbrev=False,
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="an exercise; `sixfold progress` lists them")
    parser.add_argument("--file", type=Path, help="check this file instead of the one in work/")
    parser.add_argument("--time-limit", type=float, default=runner.TIME_LIMIT, metavar="SECONDS",
                        help="for your code on all cases (default: %(default)g)")  # fmt: skip
    return parser


def run(options: argparse.Namespace) -> int:
    """Print what each check found; 1 unless all pass.

    Raises:
        UsageError: no such exercise or file, or nothing to check.
    """
    if not options.time_limit > 0:
        raise UsageError(f"--time-limit is {options.time_limit:g}: give the seconds, above 0")
    if options.file is not None and (len(options.ids) != 1 or not options.file.is_file()):
        raise UsageError(f"--file needs one exercise and a file that exists; got {options.ids} and {options.file}")
    if options.ids:
        exercises = [find(exercise_id) for exercise_id in options.ids]
    else:
        exercises = [exercise for exercise in all_exercises() if store.exercise_file(exercise).is_file()]
        if not exercises:
            raise UsageError(
                f"nothing is begun in {store.work_folder()}: `sixfold reset 1.1` writes a first stub there"
            )
    code = 0
    for exercise in exercises:
        outcome = runner.check(exercise, options.file, options.time_limit)
        print(outcome, flush=True)
        code = code if outcome.status == "pass" else 1
    return code
