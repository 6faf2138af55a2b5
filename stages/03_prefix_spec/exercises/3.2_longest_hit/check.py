"""What can be reused of requests, given what a cache still holds of their blocks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
Subject = Callable[[Iterable[bytes], Callable[[bytes], int | None]], list[int]]


def cases(rng: random.Random) -> list[Case]:
    """``held`` says for each block of the request where it is in the cache, if it is. Ids are in no order."""

    def case(name: str, words: str, *held: int | None) -> Case:
        return Case(name, words, {"held": list(held)})

    ids = rng.sample(range(90), 60)
    return [
        case("all of it", "every block is there: all of them, in the request's order", 7, 2, 9),
        case("the beginning", "two blocks are there, the third is not", 7, 2, None, None),
        case("nothing", "the first block is missing", None, None),
        case("block 0", "0 is the id of a block like any other", 4, 0, 5, None),
        case("a gap", "behind a gap nothing can be used, although it is there", 8, 3, None, 6, 1),
        case("the first is gone", "all the others are there, and none is of use", None, 3, 6, 1),
        case("a short request", "it has no full block", ),
        case("block 0 alone", "the only block is number 0", 0),
        *(case(f"random {i}", "a long request, parts of which were handed out anew",
               *(None if rng.random() < chance else block for block in ids))
          for i, chance in enumerate((0.05, 0.2, 0.5))),
    ]  # fmt: skip


def run(subject: Subject, case: Case) -> Any:
    """What the subject makes of keys that can be walked through once."""
    held = {f"block {place}".encode(): block for place, block in enumerate(case.inputs["held"])}
    return subject(iter(held), held.get)


def expected(case: Case) -> Any:
    """What is right."""
    return run(spec.longest_hit, case)
