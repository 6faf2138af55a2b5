"""``sixfold diff A B``: what stage B adds to stage A. ``sixfold diff 0 1`` lists the first stage.

vLLM: none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sixfold.errors import UsageError
from sixfold.stage_diff import Module, describe, package_folder, read_modules, too_large
from sixfold.stages import NUMBERS, available


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; ``argv`` changes nothing here."""
    parser = argparse.ArgumentParser(
        prog="sixfold diff",
        description="Show what a stage adds: new files, files that take another's place, and what it reuses by import.",
        allow_abbrev=False,
    )
    parser.add_argument("before", type=int, metavar="A", help="the stage to start from; 0 = from nothing")
    parser.add_argument("after", type=int, metavar="B", help="the stage to arrive at")
    return parser


def run(options: argparse.Namespace) -> int:
    """Print one section a stage between the two; 1 when one of them adds more than is allowed."""
    numbers = between(options.before, options.after, available())
    earlier: list[Module] = []
    for number in range(1, options.before + 1):
        earlier += read_modules(number, package_folder(number))
    complaints = []
    for place, number in enumerate(numbers):
        own = read_modules(number, package_folder(number))
        print("\n".join([""] * bool(place) + describe(number, earlier, own)))
        complaints += [too_large(number, own)]
        earlier += own
    if found := [complaint for complaint in complaints if complaint]:
        print("\n" + "\n".join(found))
    return 1 if found else 0


def between(before: int, after: int, here: Sequence[int]) -> range:
    """The stages that are added on the way from ``before`` to ``after``.

    Raises:
        UsageError: they are not in order, or one is not here.
    """
    if not 0 <= before < after <= NUMBERS[-1]:
        raise UsageError(f"diff goes from an earlier stage to a later one, 0 to {NUMBERS[-1]}; not {before} to {after}")
    numbers = range(before + 1, after + 1)
    if missing := [number for number in range(1, after + 1) if number not in here]:
        present = ", ".join(map(str, here)) or "none"
        raise UsageError(
            f"stage {missing[0]} is not here yet (present: {present}); `sixfold diff 0 1` lists what the first one adds"
        )
    return numbers
