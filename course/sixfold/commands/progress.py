"""``sixfold progress``: every exercise, and where the learner stands.

Owns nothing but the command; the table is ``sixfold.exercises.progress``.

vLLM: no counterpart.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sixfold.exercises.progress import progress


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; the command has no options of its own."""
    return argparse.ArgumentParser(
        prog="sixfold progress",
        description="List the exercises, what passes, and how good your predictions were.",
        allow_abbrev=False,
    )


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    print(progress())
    return 0
