"""What is asked of ``propose``: the longest match, its first place, what follows it, and how much of that."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage3.spec.ngram import NgramRules

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
Subject = Callable[[Sequence[int], NgramRules, int], list[int]]


def cases(rng: random.Random) -> list[Case]:
    """``longest`` and ``shortest`` are lengths of a match, ``most`` the number of drafts: the rules."""

    def case(name: str, words: str, tokens: list[int], longest: int, shortest: int, most: int, room: int = 99) -> Case:
        inputs = {"tokens": tokens, "longest": longest, "shortest": shortest, "most": most, "room": room}
        return Case(name, words, inputs)

    return [
        case("a repeat", "7 8 9 has come before, and 4 5 followed", [7, 8, 9, 4, 5, 1, 7, 8, 9], 3, 3, 2),
        case("nothing new", "nothing has come twice: no drafts", [1, 2, 3, 4, 5], 3, 1, 4),
        case("a shorter match", "2 3 4 is new here, 3 4 is not: what followed that", [9, 3, 4, 6, 5, 2, 3, 4], 3, 2, 2),
        case("the longer wins", "4 comes first, before 6; but 3 4 comes before 5",
             [4, 6, 1, 3, 4, 5, 2, 3, 4], 3, 1, 1),
        case("the first place", "3 4 comes twice before the end: its first place counts",
             [3, 4, 6, 6, 3, 4, 7, 7, 3, 4], 2, 2, 2),
        case("too short", "1 2 has come before, but a match must have 3 tokens", [1, 2, 5, 6, 1, 2], 4, 3, 3),
        case("little room", "the request ends soon: at most one draft", [7, 8, 4, 5, 6, 7, 8], 2, 2, 3, room=1),
        case("no room", "not one more token fits behind the next", [7, 8, 4, 5, 6, 7, 8], 2, 2, 3, room=0),
        case("less than no room", "the last token fills the model's length", [7, 8, 4, 5, 6, 7, 8], 2, 2, 3, room=-1),
        case("the text ends", "behind the match there are three tokens only", [5, 6, 1, 5, 6], 2, 2, 6),
        case("it overlaps", "2 2 2 ends one token before the last 2 2 2: one token followed", [1, 2, 2, 2, 2], 3, 2, 4),
        case("one token", "nothing came before", [3], 3, 1, 4),
        case("short text", "the text is shorter than the longest match", [6, 6], 5, 1, 4),
        *(case(f"random {i}", "a long text of few words", [rng.randrange(words) for _ in range(80)], 4, 2, 3)
          for i, words in enumerate((3, 6, 9))),
    ]  # fmt: skip


def run(subject: Subject, case: Case) -> Any:
    """What the subject makes of the case."""
    given = case.inputs
    return subject(given["tokens"], NgramRules(given["most"], given["longest"], given["shortest"]), given["room"])


def expected(case: Case) -> Any:
    """What is right."""
    return run(spec.propose, case)
