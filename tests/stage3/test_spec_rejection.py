"""Verification: plain decoding's tokens by match, the target's distribution by rejection, and nothing else touched."""

from __future__ import annotations

import random

import pytest
import torch

from stage1.batch import ForwardBatch, RowState, Sampled
from stage1.interfaces import Drafts
from stage1.params import SamplingParams
from stage1.sampler import TorchSampler
from stage3.spec.rejection import (
    DrawRules,
    accept_matching,
    count_accepted,
    draw_residual,
    kept_logits,
    verify_by_match,
    verify_by_rejection,
)

INF, NAN = float("inf"), float("nan")
PARAMS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.15},
    {"temperature": 0.9, "top_k": 9, "top_p": 0.9, "min_p": 0.05},
]


def rules_of(params: list[dict[str, float]], seeds: list[int], positions: list[int]) -> DrawRules:
    def column(name: str, default: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([p.get(name, default) for p in params], dtype=dtype)

    return DrawRules(
        column("temperature", 1.0, torch.float32),
        column("top_k", 0, torch.int64),
        column("top_p", 1.0, torch.float32),
        column("min_p", 0.0, torch.float32),
        torch.tensor(seeds),
        torch.tensor(positions),
    )


def drafts_of(rows: list[list[int]], k: int, padding: int = 0) -> Drafts:
    ids = torch.tensor([[*row, *[padding] * (k - len(row))] for row in rows], dtype=torch.int64).view(len(rows), k)
    return Drafts(ids, torch.tensor([len(row) for row in rows]))


def kept(sampled: Sampled) -> list[list[int]]:
    for row, count in zip(sampled.ids.tolist(), sampled.counts.tolist(), strict=True):
        assert count >= 1
        assert not any(row[count:])
    return [row[:count] for row, count in zip(sampled.ids.tolist(), sampled.counts.tolist(), strict=True)]


class Text:
    """A target whose logits depend on all tokens before, and its plain decoding with the plain sampler."""

    def __init__(self, vocab: int, seed: int) -> None:
        self.table = torch.randn(97, vocab, generator=torch.Generator().manual_seed(seed)) * 3

    def logits(self, tokens: list[int]) -> torch.Tensor:
        return self.table[sum((i + 1) * (t + 1) for i, t in enumerate(tokens)) % 97]

    def plain(self, params: dict[str, float], seed: int, count: int) -> list[int]:
        tokens = [1, 2]
        for _ in range(count):
            state = RowState("a", SamplingParams(**params, max_tokens=count), seed, 2, tokens, [0], 0)
            one = torch.zeros(1, dtype=torch.int64)
            batch = ForwardBatch(one, one, one, one, one, one[:, None], one, one, 1, 1, [state], [True])
            tokens = [*tokens, int(TorchSampler().sample(self.logits(tokens)[None].clone(), batch).ids[0, 0])]
        return tokens[2:]


@pytest.mark.parametrize("by_rejection", [False, True])
def test_greedy_output_is_that_of_plain_decoding_whatever_the_drafts(by_rejection):
    check_output_is_plain([{"temperature": 0.0}] * 3, by_rejection)


def test_seeded_output_is_that_of_plain_decoding_whatever_the_drafts():
    check_output_is_plain(PARAMS, False)


def check_output_is_plain(params, by_rejection):
    """Requests with drafts that are right, wrong, few or none, together in a batch of changing widths."""
    text, chance, count = Text(40, 1), random.Random(2), 24
    seeds = [11 * i - 20 for i in range(len(params))]
    expected = [text.plain(p, seed, count) for p, seed in zip(params, seeds, strict=True)]
    outputs: list[list[int]] = [[] for _ in params]
    num_steps = 0
    while min(len(output) for output in outputs) < count:
        k = chance.randrange(0, 5)
        rows = []
        for output, right in zip(outputs, expected, strict=True):
            future = right[len(output) : len(output) + chance.randrange(0, k + 1)]
            rows.append([t if chance.random() < 0.8 else chance.randrange(40) for t in future])
        logits = torch.full((len(params), 1 + k, 40), NAN)
        for i, (output, draft) in enumerate(zip(outputs, rows, strict=True)):
            for j in range(1 + len(draft)):
                logits[i, j] = text.logits([1, 2, *output, *draft[:j]])
        rules = rules_of(params, seeds, [len(output) for output in outputs])
        drafts = drafts_of(rows, k, padding=-7)
        if by_rejection:
            one_hot = torch.nn.functional.one_hot(drafts.ids.clamp(min=0), 40).float()
            sampled = verify_by_rejection(logits, drafts, one_hot, rules)
        else:
            sampled = verify_by_match(logits, drafts, rules)
        assert not sampled.bad.any()
        outputs = [output + new for output, new in zip(outputs, kept(sampled), strict=True)]
        num_steps += 1
    assert [output[:count] for output in outputs] == expected
    assert num_steps < count  # drafts were accepted


@pytest.mark.parametrize("by_rejection", [False, True])
def test_inputs_are_not_changed(by_rejection):
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 4, 30, generator=generator)
    probs = torch.rand(6, 3, 30, generator=generator).softmax(dim=2)
    drafts = drafts_of([[1, 2, 3], [4], [], [5, 6], [7, 8, 9], [1]], 3)
    rules = rules_of(PARAMS, list(range(6)), [0] * 6)
    given = (logits, probs, drafts.ids, drafts.counts, *(getattr(rules, name) for name in rules.__slots__))
    before = [tensor.clone() for tensor in given]
    if by_rejection:
        verify_by_rejection(logits, drafts, probs, rules)
    else:
        verify_by_match(logits, drafts, rules)
    assert all(torch.equal(now, then) for now, then in zip(given, before, strict=True))


def test_a_result_depends_on_its_own_request_alone():
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(6, 4, 30, generator=generator)
    probs = torch.rand(6, 3, 30, generator=generator).softmax(dim=2)
    rows = [[1, 2, 3], [4], [], [5, 6], [7, 8, 9], [1]]
    rules = rules_of(PARAMS, [2**40 + i for i in range(6)], [2**33, 1, 2, 3, 4, 5])
    together = kept(verify_by_rejection(logits, drafts_of(rows, 3), probs, rules))
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    shuffled = verify_by_rejection(logits[order], drafts_of([rows[i] for i in order], 3), probs[order], rules.of(order))
    assert kept(shuffled) == [together[i] for i in order]
    for i in range(6):
        one = torch.tensor([i])
        assert kept(verify_by_rejection(logits[one], drafts_of([rows[i]], 3), probs[one], rules.of(one))) == [
            together[i]
        ]


@pytest.mark.parametrize("by_rejection", [False, True])
@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_a_request_is_bad_only_where_a_needed_row_is(by_rejection, broken):
    logits = torch.zeros(4, 3, 8)
    logits[:, :, 5] = 9.0
    logits[0, 0] = logits[1, 1] = logits[2, 2] = logits[3, 2] = broken
    drafts = drafts_of([[5, 5], [5, 5], [5, 5], [4, 5]], 2)  # the last is rejected before its broken row
    rules = rules_of([{"temperature": 0.0}] * 4, [0] * 4, [0] * 4)
    if by_rejection:
        sampled = verify_by_rejection(logits, drafts, torch.nn.functional.one_hot(drafts.ids, 8).float(), rules)
    else:
        sampled = verify_by_match(logits, drafts, rules)
    assert sampled.bad.tolist() == [True, True, True, False]
    assert sampled.counts[3] == 1
    assert ((sampled.ids >= 0) & (sampled.ids < 8)).all()


@pytest.mark.parametrize("params", PARAMS)
def test_without_drafts_it_is_the_plain_sampler(params):
    logits = torch.randn(5, 1, 40, generator=torch.Generator().manual_seed(6))
    rules = rules_of([params] * 5, list(range(5)), [7] * 5)
    drafts = drafts_of([[]] * 5, 0)
    states = [RowState(str(i), SamplingParams(**params, max_tokens=99), i, 3, [0] * 10, [0], 0) for i in range(5)]
    rows = torch.arange(5)
    batch = ForwardBatch(rows, rows, rows, rows, rows, rows[:, None], rows, rows, 1, 1, states, [True] * 5)
    plain = TorchSampler().sample(logits[:, 0].clone(), batch).ids.tolist()
    assert kept(verify_by_match(logits, drafts, rules)) == plain
    assert kept(verify_by_rejection(logits, drafts, torch.zeros(5, 0, 40), rules)) == plain


def test_an_impossible_draft_never_stays():
    logits = torch.tensor([[[5.0, 4.0, -INF, 1.0]] * 2] * 200)
    rules = rules_of([{"temperature": 1.0, "top_k": 2}] * 200, list(range(200)), [0] * 200)
    for token in (2, 3):  # masked, and left out by top-k
        drafts = drafts_of([[token]] * 200, 1)
        probs = torch.full((200, 1, 4), 0.25)
        for sampled in (verify_by_match(logits, drafts, rules), verify_by_rejection(logits, drafts, probs, rules)):
            assert (sampled.counts == 1).all()
            assert set(sampled.ids[:, 0].tolist()) == {0, 1}


def test_a_draft_from_the_targets_own_distribution_always_stays():
    logits = torch.randn(300, 3, 12, generator=torch.Generator().manual_seed(8))
    rules = rules_of([{"temperature": 1.0}] * 300, list(range(300)), [0] * 300)
    probs = logits[:, :2].softmax(dim=2)
    drafts = Drafts(torch.randint(12, (300, 2), generator=torch.Generator().manual_seed(9)), torch.full((300,), 2))
    p = probs.gather(2, drafts.ids[:, :, None])[:, :, 0]
    assert (count_accepted(p, p.clone(), drafts, rules) == 2).all()


def test_where_nothing_is_left_of_the_residual_the_target_decides():
    target = torch.tensor([[0.5, 0.5, 0.0]] * 50)
    uniform = torch.linspace(0, 0.99, 50, dtype=torch.float64)
    assert draw_residual(target, target.clone(), uniform).tolist() == [0] * 25 + [1] * 25


def test_tokens_that_the_drafts_have_enough_of_are_never_drawn_instead():
    target, draft = torch.tensor([[0.2, 0.3, 0.1, 0.4]]), torch.tensor([[0.3, 0.2, 0.3, 0.2]])
    uniform = torch.tensor([0.0, 0.3, 0.36, 0.9999999], dtype=torch.float64)  # of 1 and 3, a third and two thirds
    assert draw_residual(target.expand(4, -1), draft.expand(4, -1), uniform).tolist() == [1, 1, 3, 3]


def test_greedy_keeps_the_first_maximum_alone():
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]])
    kept_ones = kept_logits(logits, rules_of([{"temperature": 0.0}] * 2, [0, 0], [0, 0])).isfinite()
    assert kept_ones.tolist() == [[False, True, False], [True, False, False]]


def test_acceptance_counts_up_to_the_first_difference():
    drawn = torch.tensor([[4, 5, 6, 7]] * 5)
    drafts = drafts_of([[4, 5, 6], [4, 9, 6], [9, 5, 6], [4, 5], []], 3, padding=6)
    sampled = accept_matching(drawn, torch.zeros(5, 4, dtype=torch.bool), drafts)
    assert kept(sampled) == [[4, 5, 6, 7], [4, 5], [4], [4, 5, 6], [4]]
