"""The distribution of speculated output on a toy vocabulary is the target's: chi-square with fixed seeds.

Target and drafter are tables: the last token decides the logits of the next. Thousands of requests speculate until
each has three tokens, and how often each of the sequences came is compared with the product of the target's
probabilities. A slow verification, token by token in plain Python, gives the same tokens as the fast one, and shows
what the comparison finds when it is made wrong.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts
from stage1.philox import exponential_noise
from stage3.spec.noise import verification_noise
from stage3.spec.rejection import DrawRules, draw, kept_logits, verify_by_match, verify_by_rejection

VOCAB, DRAFTS, LENGTH = 4, 2, 3
TABLES = torch.randn(2, VOCAB, VOCAB, generator=torch.Generator().manual_seed(12)) * 1.2
TARGET, DRAFTER = TABLES
FILTERS = {
    "temperature": (0.8, 0, 1.0, 0.0),
    "top_k": (1.0, 3, 1.0, 0.0),
    "top_p": (1.0, 0, 0.85, 0.0),
    "min_p": (1.1, 0, 1.0, 0.25),
    "all": (0.9, 3, 0.9, 0.1),
}
Verify = Callable[[torch.Tensor, Drafts, torch.Tensor, DrawRules], Sampled]


def rules(filters: tuple[float, int, float, float], seeds: torch.Tensor, positions: torch.Tensor) -> DrawRules:
    def column(value: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((len(seeds),), value, dtype=dtype)

    temperature, top_k, top_p, min_p = filters
    return DrawRules(
        column(temperature, torch.float32), column(top_k, torch.int64), column(top_p, torch.float32),
        column(min_p, torch.float32), seeds, positions,
    )  # fmt: skip


def speculate(
    verify: Verify, filters: tuple[float, int, float, float], num_reqs: int, deterministic: bool, seed: int = 5
) -> tuple[list[tuple[int, ...]], float]:
    """The first three tokens of each request, and the share of the drafts that were accepted."""
    generator = torch.Generator().manual_seed(seed)
    seeds = torch.randint(-(2**63), 2**63 - 1, (num_reqs,), generator=generator)
    outputs = torch.zeros(num_reqs, LENGTH * (DRAFTS + 1) + 1, dtype=torch.int64)  # the first column is token 0
    lengths = torch.ones(num_reqs, dtype=torch.int64)
    accepted = drafted = 0
    for _ in range(LENGTH):
        how = rules(filters, seeds, lengths - 1)
        last = outputs.gather(1, lengths[:, None] - 1)[:, 0]
        context, ids, probs = [last], [], []
        for i in range(DRAFTS):
            logits = DRAFTER[context[-1]]
            if deterministic:
                token = logits.argmax(dim=1)
                q = torch.nn.functional.one_hot(token, VOCAB).float()
            else:
                token = (logits - exponential_noise(seeds, how.positions + i, VOCAB).log()).argmax(dim=1)
                q = logits.softmax(dim=1)
            context.append(token)
            ids.append(token)
            probs.append(q)
        counts = torch.randint(0, DRAFTS + 1, (num_reqs,), generator=generator)
        drafts = Drafts(torch.stack(ids, dim=1), counts)
        sampled = verify(TARGET[torch.stack(context, dim=1)], drafts, torch.stack(probs, dim=1), how)
        place = torch.arange(DRAFTS + 1)
        for j in place.tolist():  # what comes behind the counts is written over by the next round
            outputs.scatter_(1, lengths[:, None] + j, sampled.ids[:, j : j + 1])
        lengths = lengths + sampled.counts
        accepted += int((sampled.counts - 1).sum())
        drafted += int(counts.sum())
    return [tuple(row) for row in outputs[:, 1 : LENGTH + 1].tolist()], accepted / drafted


def expected_shares(filters: tuple[float, int, float, float]) -> dict[tuple[int, ...], float]:
    nothing = torch.zeros(VOCAB, dtype=torch.int64)
    p = kept_logits(TARGET, rules(filters, nothing, nothing)).double().softmax(dim=1)
    shares = {}
    for sequence in itertools.product(range(VOCAB), repeat=LENGTH):
        share = 1.0
        for before, token in zip((0, *sequence), sequence, strict=False):
            share *= float(p[before, token])
        shares[sequence] = share
    return shares


def p_value(found: list[tuple[int, ...]], shares: dict[tuple[int, ...], float]) -> float:
    """How likely so large a deviation is by chance; rare sequences count together, impossible ones not at all."""
    counts = Counter(found)
    if any(shares[sequence] == 0 for sequence in counts):
        return 0.0
    cells, rare_count, rare_expected = [], 0, 0.0
    for sequence, share in shares.items():
        expected = share * len(found)
        if expected >= 8:
            cells.append((counts[sequence], expected))
        else:
            rare_count, rare_expected = rare_count + counts[sequence], rare_expected + expected
    if rare_expected >= 8:
        cells.append((rare_count, rare_expected))
    chi_square = sum((count - expected) ** 2 / expected for count, expected in cells)
    half = torch.tensor([(len(cells) - 1) / 2, chi_square / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def by_match(logits: torch.Tensor, drafts: Drafts, probs: torch.Tensor, how: DrawRules) -> Sampled:
    return verify_by_match(logits, drafts, how)


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("verify", [by_match, verify_by_rejection])
def test_the_distribution_is_the_targets(verify, deterministic, filters):
    found, accepted = speculate(verify, FILTERS[filters], 20_000, deterministic)
    assert accepted > 0.15  # otherwise this says nothing
    assert p_value(found, expected_shares(FILTERS[filters])) > 1e-3


def test_rejection_keeps_as_many_random_drafts_as_can_be_kept():
    """With probability Σ min(p, q), here in the first position."""
    num_reqs = 20_000
    seeds = torch.arange(num_reqs)
    how = rules((1.0, 0, 1.0, 0.0), seeds, torch.zeros_like(seeds))
    q = DRAFTER[:1].softmax(dim=1)
    ids = (DRAFTER[:1] - exponential_noise(seeds, how.positions, VOCAB).log()).argmax(dim=1, keepdim=True)
    drafts = Drafts(ids, torch.ones_like(seeds))
    sampled = verify_by_rejection(TARGET[:2].expand(num_reqs, -1, -1), drafts, q.expand(num_reqs, 1, -1), how)
    best = float(torch.minimum(TARGET[0].softmax(dim=0), q[0]).sum())
    assert abs(float((sampled.counts - 1).float().mean()) - best) < 0.012


# --- the slow verification, right and wrong ---------------------------------------------------------------


def slow(
    logits: torch.Tensor, drafts: Drafts, probs: torch.Tensor, how: DrawRules, fault: str | None = None
) -> Sampled:
    """As the paper has it, one token at a time."""
    num_reqs, width, vocab = logits.shape
    each = how.at_each_position(width)
    kept = kept_logits(logits.reshape(-1, vocab), each)
    shape = (num_reqs, width)
    u, v = (noise.view(shape).tolist() for noise in verification_noise(each.seeds, each.positions))
    plain = draw(kept, each).view(shape).tolist()
    behind = torch.cat((probs, DRAFTER[drafts.ids[:, -1:]].softmax(dim=2)), dim=1)  # what the drafter would draw from
    from_drafter = draw(behind.log().view(-1, vocab), each).view(shape).tolist()
    target = kept.softmax(dim=1).view(num_reqs, width, vocab)
    left = (target[:, :-1] - probs).clamp(min=0).double().tolist()
    p_lists, q_lists, ids, counts = target.tolist(), probs.tolist(), drafts.ids.tolist(), drafts.counts.tolist()
    rows = []
    for r in range(num_reqs):
        row: list[int] = []
        for i in range(counts[r]):
            token = ids[r][i]
            p, q = p_lists[r][i][token], q_lists[r][i][token]
            if u[r][i] < p if fault == "accepts with p" else u[r][i] * q < p:
                row.append(token)
                continue
            weights = p_lists[r][i] if fault == "draws again from p" else left[r][i]
            reached, point = 0.0, v[r][i] * (1.0 if fault == "residual not normalised" else sum(weights))
            for token, weight in enumerate(weights):  # noqa: B007 - the last token stays where no sum is reached
                reached += weight
                if reached > point:
                    break
            row.append(token)
            break
        else:
            row.append((from_drafter if fault == "bonus from the drafter" else plain)[r][counts[r]])
        rows.append(row)
    padded = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return Sampled(padded, torch.tensor([len(row) for row in rows]), torch.zeros(num_reqs, dtype=torch.bool))


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_slow_verification_gives_the_same_tokens(deterministic):
    for filters in FILTERS.values():
        slowly, _ = speculate(slow, filters, 400, deterministic)
        assert speculate(verify_by_rejection, filters, 400, deterministic)[0] == slowly


@pytest.mark.parametrize(
    "fault", ["accepts with p", "residual not normalised", "draws again from p", "bonus from the drafter"]
)
def test_a_planted_bias_is_found(fault):
    filters = FILTERS["temperature"]

    def wrong(logits: torch.Tensor, drafts: Drafts, probs: torch.Tensor, how: DrawRules) -> Sampled:
        return slow(logits, drafts, probs, how, fault)

    found, _ = speculate(wrong, filters, 6_000, False)
    assert p_value(found, expected_shares(filters)) < 1e-6
    right, _ = speculate(slow, filters, 6_000, False)
    assert p_value(right, expected_shares(filters)) > 1e-3
