"""A manager under a script of calls. Any free block may be handed out: only ownership is compared."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE = {}
BLOCK_SIZE = 9


def cases(rng: random.Random) -> list[Case]:
    """From one request to a long random script."""

    def case(name: str, words: str, num_blocks: int, *calls: spec.Call) -> Case:
        return Case(name, words, {"num_blocks": num_blocks, "block_size": BLOCK_SIZE, "calls": list(calls)})

    def any_call() -> spec.Call:
        req_id = rng.choice("abcdefg")
        return free(req_id) if rng.random() < 0.4 else take(req_id, rng.randint(1, BLOCK_SIZE + 2))

    def take(req_id: str, upto: int) -> spec.Call:
        return ("allocate", req_id, upto)

    def free(req_id: str) -> spec.Call:
        return ("free", req_id)

    return [
        case("first call", "a request gets a block", 2, take("a", 5)),
        case("second call", "its later tokens fit into the block that it has", 2, take("a", 5), take("a", 6)),
        case("too long", "more tokens than a block has are refused", 1, take("a", 10), take("b", 9)),
        case("full", "without a free block the answer is None", 1, take("a", 2), take("b", 2)),
        case("freed", "a freed block is handed out again", 1, take("a", 2), free("a"), take("b", 3)),
        case("free again", "freeing what owns nothing does nothing", 2,
             free("x"), take("a", 1), free("a"), free("a"), take("b", 4)),
        case("a long script", "every call of a random script", 3, *(any_call() for _ in range(60))),
    ]  # fmt: skip


def run(subject: Any, case: Case) -> Any:
    """One line a call, in the words of the specification."""
    manager = subject(case.inputs["num_blocks"], case.inputs["block_size"])
    owned: dict[str, list[int]] = {}
    lines = []
    for name, req_id, *upto in case.inputs["calls"]:
        request = SimpleNamespace(req_id=req_id)
        try:
            if name == "free":
                manager.free(request)
                owned.pop(req_id, None)
                answer = "done"
            else:
                answer = _describe(manager, owned, req_id, manager.allocate_slots(request, upto[0]))
        except (ValueError, KeyError, IndexError) as error:
            answer = type(error).__name__
        lines.append(f"{answer}, {round(manager.usage * manager.num_blocks)} of {manager.num_blocks} in use")
    return lines


def _describe(manager: Any, owned: dict[str, list[int]], req_id: str, blocks: list[int] | None) -> str:
    """What ``allocate_slots`` answered; a block that is not free is named."""
    if blocks is None:
        return "None"
    for block in blocks:
        owner = next((other for other, theirs in owned.items() if block in theirs), None)
        if owner is not None:
            return f"block {block}, which {owner} has"
        if block not in range(manager.num_blocks):
            return f"block {block!r}, which does not exist"
    owned.setdefault(req_id, []).extend(blocks)
    count = len(blocks)
    return "nothing new" if count == 0 else f"{count} new block" + ("s" if count > 1 else "")


def expected(case: Case) -> Any:
    """The specification's lines."""
    return spec.answers(case.inputs["num_blocks"], case.inputs["block_size"], case.inputs["calls"])
