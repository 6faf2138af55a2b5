"""What is asked of ``accept_matching``: how many tokens, which ones, and which positions may be bad."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage1.batch import Sampled
from stage1.interfaces import Drafts

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
Subject = Callable[[torch.Tensor, torch.Tensor, Drafts], Sampled]


def cases(rng: random.Random) -> list[Case]:
    """From one request to a batch in which every one has another number of drafts."""
    return [
        Case("all right", "three drafts, all of them stay, and a token follows the last: four",
             _inputs([[5, 8, 2, 7]], [[5, 8, 2]], [3])),
        Case("the second is wrong", "one stays, and the target's token takes the place of the second: two",
             _inputs([[5, 9, 2, 7]], [[5, 8, 2]], [3])),
        Case("the first is wrong", "nothing stays, and yet there is a token: one", _inputs([[6, 8, 2]], [[5, 8]], [2])),
        Case("fewer drafts", "of three places two are drafts; the third looks right, and is padding",
             _inputs([[5, 8, 2, 7]], [[5, 8, 2]], [2])),
        Case("no drafts", "a request without drafts beside one with two",
             _inputs([[0, 4, 1], [3, 6, 9]], [[0, 4], [3, 6]], [0, 2])),
        Case("token 0", "0 is a token like any other, and padding is often 0",
             _inputs([[0, 0, 0], [0, 0, 0]], [[0, 0], [0, 0]], [2, 1])),
        Case("a bad end", "a position that is needed is bad: so is the request",
             _inputs([[5, 9, 2], [5, 8, 2]], [[5, 8], [5, 8]], [2, 2], bad=[(0, 1), (1, 2)])),
        Case("bad, and not needed", "behind the last token that counts, bad positions are of no concern",
             _inputs([[5, 9, 2], [6, 8, 2]], [[5, 8], [5, 8]], [2, 2], bad=[(0, 2), (1, 1)])),
        Case("one draft", "the narrowest batch", _inputs([[4, 1], [7, 3]], [[4], [2]], [1, 1])),
        *(Case(f"random {i}", "many requests and few different tokens, so that drafts are often right",
               _random(rng, num_reqs, k)) for i, (num_reqs, k) in enumerate(((7, 3), (11, 5), (5, 1)))),
    ]  # fmt: skip


def run(subject: Subject, case: Case) -> Any:
    """The tokens that are meant, request by request, and whose are bad."""
    given = case.inputs
    drafts = Drafts(given["ids"].clone(), given["counts"].clone())
    result = subject(given["drawn"].clone(), given["bad_rows"].clone(), drafts)
    rows = zip(result.ids.tolist(), result.counts.tolist(), strict=True)
    return {
        "tokens": [ids[:count] for ids, count in rows],
        "bad": result.bad.bool(),
        "shape of ids": list(result.ids.shape),
    }


def expected(case: Case) -> Any:
    """What is right."""
    return run(spec.accept_matching, case)


def _random(rng: random.Random, num_reqs: int, k: int) -> dict[str, Any]:
    """Drafts that are right two times in three."""
    drawn = [[rng.randrange(3) for _ in range(k + 1)] for _ in range(num_reqs)]
    ids = [[token if rng.random() < 0.66 else rng.randrange(3) for token in row[:k]] for row in drawn]
    bad = [(r, place) for r in range(num_reqs) for place in range(k + 1) if rng.random() < 0.15]
    return _inputs(drawn, ids, [rng.randint(0, k) for _ in range(num_reqs)], bad)


def _inputs(
    drawn: list[list[int]], ids: list[list[int]], counts: list[int], bad: list[tuple[int, int]] | None = None
) -> dict[str, Any]:
    """``bad`` are (request, place)."""
    bad_rows = torch.zeros(len(drawn), len(drawn[0]), dtype=torch.bool)
    for request, place in bad or ():
        bad_rows[request, place] = True
    return {
        "drawn": torch.tensor(drawn),
        "bad_rows": bad_rows,
        "ids": torch.tensor(ids),
        "counts": torch.tensor(counts),
    }
