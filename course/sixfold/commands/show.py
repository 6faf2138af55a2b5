"""``sixfold show``: draw what the learner's version of an exercise makes of a small input.

Owns the picture's file; the picture is the exercise's ``show.py``.

vLLM: no counterpart.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from sixfold.errors import UsageError
from sixfold.exercises import lesson, store
from sixfold.exercises.catalog import find

FORMATS = (".png", ".svg", ".pdf")


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; its flags do not depend on ``argv``."""
    parser = argparse.ArgumentParser(
        prog="sixfold show",
        description="Draw your own result on a small input; the reference's where you have none.",
        allow_abbrev=False,
    )
    parser.add_argument("id", metavar="ID", help="an exercise, such as 1.2")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a .png, .svg or .pdf (default: one in work/)")
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the picture, and say where and whose it is.

    Raises:
        UsageError: no such exercise, or a kind of picture that cannot be written.
    """
    exercise = find(options.id)
    out = options.out or store.work_folder() / f"{exercise.module_name}.png"
    if out.suffix not in FORMATS:
        raise UsageError(f"{out} does not end with {', '.join(FORMATS)}")
    drawing = lesson.draw(exercise)
    out.parent.mkdir(parents=True, exist_ok=True)
    drawing.figure.savefig(out, dpi=150)
    print(f"{drawing.note}\n{store.shown_path(out)}")
    return 0
