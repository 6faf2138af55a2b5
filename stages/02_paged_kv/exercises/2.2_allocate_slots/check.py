"""A manager under a script of calls, over a pool whose free blocks lie in no order."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage2.block_pool import BlockPool

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {}
BLOCK_SIZE = 5  # divides none of the lengths by accident


def cases(rng: random.Random) -> list[Case]:
    """From one block to a long random script."""

    def case(name: str, words: str, num_blocks: int, *calls: tuple[Any, ...]) -> Case:
        free = rng.sample(range(num_blocks), num_blocks)
        return Case(name, words, {"free": free, "block_size": BLOCK_SIZE, "calls": list(calls)})

    def any_call() -> tuple[Any, ...]:
        req_id = rng.choice("abcd")
        return (
            free(req_id) if rng.random() < 0.25 else take(req_id, rng.randint(1, 4 * BLOCK_SIZE), rng.choice((0, 0, 2)))
        )

    def take(req_id: str, upto: int, lookahead: int = 0) -> tuple[Any, ...]:
        return ("allocate", req_id, upto, lookahead)

    def free(req_id: str) -> tuple[Any, ...]:
        return ("free", req_id)

    return [
        case("part of a block", "7 tokens fill one block of 5 and begin another", 4, take("a", 7)),
        case("exactly full", "10 tokens fill two blocks of 5, and begin no third", 4, take("a", 10)),
        case("one by one", "a new block only where a token begins one", 6,
             take("a", 4), take("a", 5), take("a", 6), take("a", 7), take("a", 13)),
        case("two requests", "each has its own blocks", 8, take("a", 6), take("b", 11), take("a", 12)),
        case("lookahead", "room for the tokens of this step and for guessed ones behind them", 6,
             take("a", 4, 2), take("a", 9, 3), take("a", 11)),
        case("too few", "not all of the blocks are free: None, and nothing is taken", 3,
             take("a", 6), take("b", 8), take("b", 5)),
        case("freed", "every block goes back, the last one of the request first", 6,
             take("a", 6), take("a", 13), take("b", 3), free("a"), take("b", 9)),
        case("free again", "freeing what owns nothing does nothing", 3, free("x"), take("a", 9), free("a"), free("a"),
             take("a", 2)),
        case("a long script", "every call of a random script", 11, *(any_call() for _ in range(80))),
    ]  # fmt: skip


def run(subject: Any, case: Case) -> Any:
    """One line a call: what it answers, and the free list; ends early where a refusal has taken blocks."""
    pool = BlockPool(len(case.inputs["free"]))
    for block in sorted(pool.take(pool.num_blocks), key=case.inputs["free"].index):
        pool.give_back(block)
    manager = subject(pool, case.inputs["block_size"])
    lines = []
    for name, req_id, *numbers in case.inputs["calls"]:
        before = pool.num_free
        answer = _answer(manager, name, req_id, *numbers)
        if answer.endswith("None") and pool.num_free != before:
            return [*lines, f"{answer}, but {before - pool.num_free} blocks are gone"]
        lines.append(f"{answer}; free: {' → '.join(map(str, pool.free_blocks())) or 'none'}")
    return lines


def _answer(manager: Any, name: str, req_id: str, upto: int = 0, lookahead: int = 0) -> str:
    # What is computed says nothing about what has room: it lags behind by a step.
    request = SimpleNamespace(req_id=req_id, num_computed_tokens=max(upto - 3, 0), num_tokens=upto)
    try:
        if name == "free":
            manager.free(request)
            return f"free {req_id}"
        blocks = manager.allocate_slots(request, upto, lookahead)
        ahead = f" + {lookahead}" if lookahead else ""
        return f"{req_id} up to {upto}{ahead} → {blocks}"
    except (ValueError, KeyError, IndexError) as error:
        return f"{name} {req_id} raises {type(error).__name__}"


def expected(case: Case) -> Any:
    """What the plain manager answers."""
    return run(spec.PlainManager, case)
