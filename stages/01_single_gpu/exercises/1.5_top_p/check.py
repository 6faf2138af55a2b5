"""Which tokens come out of the sampler in hundreds of draws, and how often.

Every kept token of a case has a probability of several percent, so in 400 draws it comes. The noise depends on the
seed alone: the same filter gives the same tokens.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import torch

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage1.batch import ForwardBatch, RowState
from stage1.params import SamplingParams
from stage1.philox import exponential_noise

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
DRAWS = 400


def cases(rng: random.Random) -> list[Case]:
    """One filter at a time, then together, then several rows with different filters."""
    plain = [0.05, 0.31, 0.02, 0.22, 0.12, 0.18, 0.10]
    ties = [0.12, 0.06, 0.30, 0.12, 0.08, 0.12, 0.20]

    def row(probs: list[float], **params: float) -> tuple[list[float], dict[str, float]]:
        return [round(math.log(p) + 1.7, 4) for p in rng.sample(probs, len(probs))], params

    def case(name: str, words: str, *rows: tuple[list[float], dict[str, float]]) -> Case:
        return Case(name, words, {"logits": [r[0] for r in rows], "params": [r[1] for r in rows]})

    return [
        case("top-p", "the token that carries the sum over top_p stays: 0.31 + 0.22 is below 0.6, so 0.18 stays too",
             row(plain, top_p=0.6)),
        case("a small top-p", "the most likely token stays, even if it alone is above top_p", row(plain, top_p=0.2)),
        case("top-k", "the three most likely tokens", row(plain, top_k=3)),
        case("top-k with equals", "three tokens share the third place: they stay together", row(ties, top_k=3)),
        case("min-p", "what has at least a quarter of the largest probability", row(plain, min_p=0.25)),
        case("top-k, then top-p", "top-p counts within the three that top-k left, renormalised: 0.31 of 0.71 is 0.44",
             row(plain, top_k=3, top_p=0.65)),
        case("a mixed batch", "each row has its own filters",
             row(plain, min_p=0.5, top_p=0.5, temperature=0.8), row(ties, top_k=1), row(plain, top_k=4, min_p=0.1)),
    ]  # fmt: skip


def run(subject: Any, case: Case) -> Any:
    """A line a row: how often each token came."""
    logits, states = _rows(case)
    with torch.inference_mode():
        sampled = subject().sample(torch.tensor(logits), _batch(states))
    return _describe(case, sampled.ids[:, 0].tolist())


def expected(case: Case) -> Any:
    """The same noise over the tokens that the specification keeps."""
    logits, states = _rows(case)
    masked = []
    for values, state in zip(logits, states, strict=True):
        params = state.params
        scaled = [value / params.effective_temperature for value in values]
        kept = spec.kept(scaled, params.top_k, params.top_p, params.min_p)
        masked.append([value if token in kept else -math.inf for token, value in enumerate(scaled)])
    noise = exponential_noise(
        torch.tensor([s.seed for s in states]), torch.zeros(len(states), dtype=torch.int64), len(logits[0])
    )
    return _describe(case, (torch.tensor(masked) - noise.log()).argmax(dim=1).tolist())


def _rows(case: Case) -> tuple[list[list[float]], list[RowState]]:
    """Every row of the case, once for each seed."""
    logits, states = [], []
    for values, params in zip(case.inputs["logits"], case.inputs["params"], strict=True):
        for seed in range(DRAWS):
            logits.append(values)
            states.append(RowState(str(seed), SamplingParams(**params), 7919 * seed + 3, 2, [1, 2], [], 0))
    return logits, states


def _batch(states: list[RowState]) -> ForwardBatch:
    """One decode step of all rows."""
    rows = torch.arange(len(states))
    ones = torch.ones_like(rows)
    starts = torch.arange(len(states) + 1)
    return ForwardBatch(
        rows, ones, ones, starts, ones * 2, rows[:, None], rows, rows, 1, 2, states, [True] * len(states)
    )


def _describe(case: Case, tokens: list[int]) -> list[dict[str, Any]]:
    """What came out of each row of the case."""
    described = []
    for i in range(len(case.inputs["logits"])):
        mine = tokens[i * DRAWS : (i + 1) * DRAWS]
        described.append(
            {"tokens that come out": sorted(set(mine)), "how often each": [mine.count(t) for t in sorted(set(mine))]}
        )
    return described
