"""A remembering pool under a script of calls; after each, everything that can be seen of it from outside."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage2.block_pool import BlockPool

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
Call = tuple[Any, ...]  # a method's name and its arguments
KEYS = "abcd"
MANY = 100_000


def cases(rng: random.Random) -> list[Case]:
    """One behaviour at a time, then a long random script, and a pool in which every search would be felt."""

    def case(name: str, words: str, num_blocks: int, *calls: Call) -> Case:
        return Case(name, words, {"num_blocks": num_blocks, "calls": list(calls)})

    held = (("take", 3), ("publish", 0, "a"), ("publish", 1, "b"), ("publish", 2, "c"))
    back = (("give_back", 2), ("give_back", 0), ("give_back", 1))
    return [
        case("free, and remembered", "a block without an owner keeps its content", 4, *held, *back),
        case("the oldest goes first", "blocks are handed out in the order in which they became free", 4,
             *held, *back, ("take", 1), ("take", 1), ("take", 2)),
        case("handed out, and forgotten", "whoever is handed out for new content can no longer be found", 3,
             *held, *back, ("take", 2)),
        case("a hit", "a free block that somebody shares leaves the free list, from the middle too", 4,
             *held, *back, ("share", 0), ("take", 3), ("give_back", 0), ("take", 1)),
        case("two owners", "the block is free when both have given it back, and not before", 3,
             *held, ("share", 1), ("give_back", 1), ("give_back", 1), ("take", 1)),
        case("too few", "a ValueError, and nothing is forgotten", 3, *held, *back, ("take", 4), ("take", 1)),
        case("twins", "two blocks hold the same: one is forgotten, the other can be found", 4,
             ("take", 3), ("publish", 2, "a"), ("publish", 0, "a"), ("publish", 1, "a"), ("forget", 2), ("forget", 1)),
        case("a later twin goes", "the one that was published first is still found, then nobody", 4,
             ("take", 2), ("publish", 1, "a"), ("publish", 0, "a"), ("forget", 0), ("forget", 1)),
        case("nothing to forget", "a block that holds nothing", 2, ("forget", 1), ("take", 1), ("forget", 0)),
        case("no owner", "a block that nobody has cannot be given back", 3, ("give_back", 1), *held, *back, *back),
        case("used again", "a block that was handed out anew can hold something else", 2,
             ("take", 1), ("publish", 0, "a"), ("give_back", 0), ("take", 2), ("publish", 0, "b"), ("publish", 1, "a")),
        *(case(f"random script {i}", "every call of a random script", 5, *(_any_call(rng, 5) for _ in range(90)))
          for i in (1, 2)),
        case("a large pool", "100,000 blocks are forgotten one by one: none may search through all", MANY, *_many(rng)),
    ]  # fmt: skip


def _any_call(rng: random.Random, num_blocks: int) -> Call:
    name = rng.choice(("take", "share", "give_back", "give_back", "publish", "publish", "forget"))
    if name == "take":
        return name, rng.randint(0, 3)
    block = rng.randrange(num_blocks)
    return (name, block, rng.choice(KEYS)) if name == "publish" else (name, block)


def _many(rng: random.Random) -> list[Call]:
    order = rng.sample(range(MANY), MANY)
    content = [("publish", block, f"content {i}") for i, block in enumerate(order)]
    return [("take", MANY), *content, *(("give_back", block) for block in rng.sample(order, MANY)), ("take", MANY)]


def run(subject: Any, case: Case) -> Any:
    """A line a call for a small pool; for a large one the end."""
    pool = subject(BlockPool(case.inputs["num_blocks"]))
    lines = []
    for name, *arguments in case.inputs["calls"]:
        said = _answer(pool, name, arguments)
        if pool.num_blocks < MANY:
            lines.append(f"{said}; {_seen(pool)}")
    return lines or [pool.num_free, pool.find(b"content 0")]


def _answer(pool: Any, name: str, arguments: list[Any]) -> str:
    shown = ", ".join(map(str, arguments))
    if name == "publish":
        arguments = [arguments[0], arguments[1].encode()]
    try:
        answer = getattr(pool, name)(*arguments)
    except (ValueError, KeyError, IndexError) as error:
        answer = type(error).__name__
    return f"{name}({shown}) → {answer}"


def _seen(pool: Any) -> str:
    found = {key: pool.find(key.encode()) for key in KEYS}
    places = ", ".join(f"{key} in {block}" for key, block in found.items() if block is not None)
    holds = [block for block in range(pool.num_blocks) if pool.key_of(block) is not None]
    return f"{pool.num_free} free; found: {places or 'nothing'}; blocks with content: {holds}"


def expected(case: Case) -> Any:
    """What the plain pool answers; of the large one what it must come to, since lists would take minutes."""
    if case.inputs["num_blocks"] == MANY:
        return [0, None]
    return run(spec.PlainCachedPool, case)
