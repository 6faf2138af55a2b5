"""``sixfold hint``: open the next hint of an exercise.

Owns nothing but the flags; the ladder is ``sixfold.exercises.lesson``.

vLLM: no counterpart.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sixfold.exercises import lesson
from sixfold.exercises.catalog import find


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; its flags do not depend on ``argv``."""
    parser = argparse.ArgumentParser(
        prog="sixfold hint",
        description="Print the next hint of an exercise: first a question, then an idea, then almost the code.",
        allow_abbrev=False,
    )
    parser.add_argument("id", metavar="ID", help="an exercise, such as 1.2")
    parser.add_argument("level", nargs="?", type=int, metavar="LEVEL", help="1 to 3 (default: the next one)")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print the hint."""
    print(lesson.hint(find(options.id), options.level))
    return 0
