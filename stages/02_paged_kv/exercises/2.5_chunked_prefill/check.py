"""What is asked of ``chunk``: single answers, and whole prompts over several steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
MOST_STEPS = 60


def cases(rng: random.Random) -> list[Case]:
    """From a prompt that fits to random ones in random company."""

    def case(name: str, words: str, gap: int, budgets: list[int], threshold: int) -> Case:
        return Case(name, words, {"gap": gap, "budgets": budgets, "threshold": threshold})

    def others() -> list[int]:
        return [rng.randint(1, 9) for _ in range(MOST_STEPS)]

    return [
        case("it fits", "the whole gap in one step, and not a token more", 5, [8], 0),
        case("exactly full", "a gap as large as the budget", 8, [8], 0),
        case("too long", "as much as the step holds now, the rest in later steps", 20, [6, 6, 6, 6], 0),
        case("a changing budget", "each step gives what others leave: unequal pieces", 19, [7, 2, 6, 9], 0),
        case("the threshold", "no more than 4 a step, although the budget would hold 9", 10, [9, 9, 9], 4),
        case("the budget is smaller", "a threshold of 5 does not help where only 2 are left", 9, [2, 7, 2, 8], 5),
        case("the gap is smaller", "one token is one token, whatever the limits", 1, [6], 3),
        case("random company", "a long prompt among others, without a threshold", rng.randint(60, 90), others(), 0),
        case("random company, a threshold", "a long prompt among others, at most 3 a step",
             rng.randint(60, 90), others(), 3),
    ]  # fmt: skip


def run(subject: Callable[[int, int, int], int], case: Case) -> Any:
    """The pieces of the prompt, step by step, until it is computed."""
    gap, pieces = case.inputs["gap"], []
    for budget in case.inputs["budgets"]:
        if gap <= 0:
            break
        pieces.append(subject(gap, budget, case.inputs["threshold"]))
        gap -= pieces[-1] if isinstance(pieces[-1], int) else gap
    return pieces


def expected(case: Case) -> Any:
    """What is right."""
    return run(spec.chunk, case)
