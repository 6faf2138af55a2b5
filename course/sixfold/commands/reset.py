"""``sixfold reset``: begin an exercise, or begin it anew.

Owns nothing but the flags. One exercise is touched, and what was there is kept under a dated name.

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
        prog="sixfold reset",
        description="Write the stub of an exercise into work/. A version of yours that is there is kept in work/old/.",
        allow_abbrev=False,
    )
    parser.add_argument("id", metavar="ID", help="an exercise, such as 1.2")
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the stub, and say where."""
    print(lesson.reset(find(options.id)))
    return 0
