"""The flag ``--mine``: run a stage with the learner's versions of its parts.

Owns what the commands that start an engine say about whose code runs.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mine:
    """A stage's ``Parts`` with the learner's versions in it, and part → "yours" or "reference"."""

    parts: Any
    owners: dict[str, str]


def add_mine_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--mine``."""
    parser.add_argument(
        "--mine",
        action="store_true",
        help="run your versions of the exercises that pass their check (the reference's else)",
    )


def load_mine(stage: int, backend: str = "auto") -> Mine:
    """The learner's parts for an ``attention_backend``; prints to standard error whose version of each part runs."""
    from sixfold.exercises import mine

    states = mine.survey(stage, backend=backend)
    print(mine.banner(states), file=sys.stderr)
    return Mine(mine.parts_from(stage, mine.paths_of(states)), mine.owners_of(states))
