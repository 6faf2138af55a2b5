"""A pool under a script of calls. The order of the free list is part of the contract, so the answers are exact."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {}
Call = tuple[str, int]  # a method's name and its argument
MOST_LISTED = 12  # blocks, up to which the whole pool is told after each call
LARGE = 300_000


def cases(rng: random.Random) -> list[Case]:
    """From one call to a long random script, and a pool in which every step through the list would be felt."""

    def case(name: str, words: str, num_blocks: int, *calls: Call) -> Case:
        return Case(name, words, {"num_blocks": num_blocks, "calls": list(calls)})

    middle = [*range(LARGE // 2, LARGE // 2 + 40_000)]
    rng.shuffle(middle)
    many = [("share", block) for block in middle] + [("give_back", block) for block in middle[::3]]
    return [
        case("taken from the head", "blocks are handed out in the order of the list", 5, ("take", 2), ("take", 1)),
        case("joins at the tail", "the block that was given back last is handed out last", 4,
             ("take", 3), ("give_back", 1), ("give_back", 0), ("take", 2)),
        case("down to none", "all blocks can be taken, and the list is usable afterwards", 3,
             ("take", 3), ("give_back", 2), ("give_back", 0), ("take", 1)),
        case("too few", "more than are free: a ValueError, and everything stays as it was", 3,
             ("take", 1), ("take", 3), ("take", 2)),
        case("two owners", "a block is free only when its last owner has given it back", 4,
             ("take", 2), ("share", 1), ("give_back", 1), ("give_back", 1)),
        case("a free block is shared", "it leaves the list from wherever it stands there", 5,
             ("share", 3), ("take", 1), ("share", 4), ("take", 2)),
        case("back, and shared", "a block that came back is linked to both sides, like all others", 4,
             ("take", 3), ("give_back", 0), ("give_back", 1), ("share", 0), ("take", 2)),
        case("no owner", "a block that nobody has cannot be given back", 3,
             ("give_back", 1), ("take", 2), ("give_back", 0), ("give_back", 0)),
        case("a long script", "every call of a random script", 7, *(_any_call(rng, 7) for _ in range(120))),
        case("a large pool", "50,000 calls on 300,000 blocks: none may walk through the list", LARGE,
             *many, ("take", 5)),
    ]  # fmt: skip


def _any_call(rng: random.Random, num_blocks: int) -> Call:
    name = rng.choice(("take", "share", "give_back", "give_back"))
    return name, rng.randint(0, 3) if name == "take" else rng.randrange(num_blocks)


def run(subject: Any, case: Case) -> Any:
    """One line a call for a small pool, up to one after which it contradicts itself; for a large one the end."""
    pool = subject(case.inputs["num_blocks"])
    lines = []
    for name, argument in case.inputs["calls"]:
        answer = _answer(pool, name, argument)
        if pool.num_blocks <= MOST_LISTED:
            owners = [pool.ref_count(block) for block in range(pool.num_blocks)]
            lines.append(f"{answer}; {_free(pool, pool.num_blocks)}; owners {' '.join(map(str, owners))}")
            if any(owners[block] for block in islice(pool.free_blocks(), pool.num_blocks)):
                return [*lines, "a block with an owner is on the free list"]
    return lines or [answer, _free(pool, 8)]


def _answer(pool: Any, name: str, argument: int) -> str:
    try:
        answer = getattr(pool, name)(argument)
    except (ValueError, KeyError, IndexError) as error:
        answer = type(error).__name__
    return f"{name}({argument}) → {answer}"


def _free(pool: Any, most: int) -> str:
    """The free list; one that goes round in a circle is cut."""
    blocks = list(islice(pool.free_blocks(), most + 1))
    return f"{pool.num_free} free: {' → '.join(map(str, blocks)) or 'none'}"


def expected(case: Case) -> Any:
    """What the plain pool answers."""
    return run(spec.PlainPool, case)
