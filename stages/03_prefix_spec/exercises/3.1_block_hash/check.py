"""Which blocks get the same name. The bytes are free: only what is equal and what is not can be right or wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
START, SALTED = b"\x07" * 32, bytes(range(32))
Chain = list[list[int]]  # the tokens of a request, block by block
PRIME = 2**61 - 1  # Python's hash of a whole number is its remainder by this


def cases(rng: random.Random) -> list[Case]:
    """Pairs that differ in one respect, then many random chains of few tokens, so that blocks repeat."""

    def case(name: str, words: str, *chains: Chain, parents: tuple[bytes, ...] = ()) -> Case:
        return Case(name, words, {"chains": list(chains), "parents": list(parents or [START] * len(chains))})

    def some() -> Chain:
        return [[rng.choice((3, 5)) for _ in range(3)] for _ in range(3)]

    return [
        case("the same twice", "equal tokens behind an equal parent: one name", [[5, 9, 2]], [[5, 9, 2]], [[5, 9, 4]]),
        case("another beginning", "the second blocks have the same tokens, but not the same tokens before them",
             [[1, 2], [7, 8]], [[3, 4], [7, 8]], [[1, 2], [7, 8]]),
        case("far back", "the difference is two blocks back, and is still felt",
             [[6, 2], [7, 8], [7, 8]], [[2, 2], [7, 8], [7, 8]]),
        case("where the chain starts", "another start, as a salt makes it: nothing is shared",
             [[5, 9], [2, 1]], [[5, 9], [2, 1]], parents=(START, SALTED)),
        case("where a number ends", "1 and 23 are not 12 and 3", [[1, 23]], [[12, 3]], [[1, 2, 3]], [[123]]),
        case("large numbers", "all of the token counts, not only its last byte",
             [[1, 40_000]], [[1, 40_256]], [[1, 64]], [[1, 151_935]]),
        case("the order", "the same tokens in another order are another text", [[4, 8, 8]], [[8, 4, 8]], [[8, 8, 4]]),
        case("numbers that were chosen", "nobody can choose tokens whose names clash",
             [[11, 0, 5]], [[11, PRIME, 5]], [[11, 0, 5 + PRIME]]),
        case("zeros", "a zero is a token like any other", [[0, 0]], [[0]], [[0, 0, 0]]),
        case("random chains", "many short chains of two different tokens", *(some() for _ in range(40))),
    ]  # fmt: skip


def run(subject: Callable[[Any, list[int]], Any], case: Case) -> Any:
    """A number for each block: blocks with one name have one number. And what a name is made of."""
    numbers: dict[Any, int] = {}
    rows, kinds = [], set()
    for parent, chain in zip(case.inputs["parents"], case.inputs["chains"], strict=True):
        row, name = [], parent
        for token_ids in chain:
            name = subject(name, list(token_ids))
            kinds.add("32 bytes" if isinstance(name, bytes) and len(name) == 32 else "not 32 bytes")
            row.append(numbers.setdefault(name, len(numbers)))
        rows.append(row)
    return {"number of each block's name": rows, "a name is": sorted(kinds)}


def expected(case: Case) -> Any:
    """What is right."""
    return {**run(spec.hash_block, case), "a name is": ["32 bytes"]}
