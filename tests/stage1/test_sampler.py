"""The sampler: filters against a plain version, draws against softmax, and rows that never see their neighbours."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from stage1.batch import ForwardBatch, RowState, Sampled
from stage1.params import SamplingParams
from stage1.philox import exponential_noise
from stage1.sampler import TorchSampler

INF = math.inf


def state(seed: int = 0, outputs: int = 0, **params: Any) -> RowState:
    params.setdefault("max_tokens", 10**6)
    tokens = [1] * (3 + outputs)
    return RowState(f"r{seed}-{outputs}", SamplingParams(**params), seed, 3, tokens, [0], len(tokens) - 1)


def batch_of(states: list[RowState], samples: list[bool] | None = None) -> ForwardBatch:
    rows = torch.arange(len(states))
    return ForwardBatch(
        rows=rows,
        input_ids=rows,
        positions=rows,
        query_start=torch.arange(len(states) + 1),
        seq_lens=rows + 1,
        block_table=rows[:, None],
        slot_mapping=rows,
        logits_rows=rows,
        max_query_len=1,
        max_seq_len=len(states),
        states=states,
        samples=[True] * len(states) if samples is None else samples,
    )


def sample(logits: torch.Tensor, states: list[RowState], samples: list[bool] | None = None) -> Sampled:
    return TorchSampler().sample(logits.clone(), batch_of(states, samples))


def tokens(logits: torch.Tensor, states: list[RowState]) -> list[int]:
    return sample(logits, states).ids[:, 0].tolist()


# --- greedy, temperature ------------------------------------------------------------------------------


def test_greedy_takes_the_best_and_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("noise for greedy rows")

    monkeypatch.setattr("stage1.sampler.exponential_noise", refuse)
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(1))
    states = [state(s, temperature=0, top_p=0.3, top_k=5, min_p=0.5) for s in range(4)]
    assert tokens(logits, states) == logits.argmax(1).tolist()


@pytest.mark.parametrize("temperature", [1e-3, 1e-4, 1e-6, 1e-8, 1e-30])
def test_tiny_temperatures_equal_greedy(temperature: float) -> None:
    logits = torch.tensor([[5.0, 3.1, -2.0, 4.9 - 1.9]]).repeat(64, 1)  # a margin of 1.9, as in counting
    out = sample(logits, [state(s, temperature=temperature) for s in range(64)])
    assert out.ids.flatten().tolist() == [0] * 64
    assert not out.bad.any()


def test_huge_temperatures_are_uniform_and_finite() -> None:
    logits = torch.tensor([[50.0, -INF, 0.0, -50.0]]).repeat(300, 1)
    out = sample(logits, [state(s, temperature=1e30) for s in range(300)])
    assert not out.bad.any()
    counts = torch.bincount(out.ids.flatten(), minlength=4).tolist()
    assert counts[1] == 0
    assert min(counts[0], counts[2], counts[3]) > 60


@pytest.mark.parametrize("top_k", [0, -1, 40, 49152, 10**9])
def test_top_k_off_changes_nothing(top_k: int) -> None:
    logits = torch.randn(30, 40, generator=torch.Generator().manual_seed(2))
    plain = tokens(logits, [state(s) for s in range(30)])
    assert tokens(logits, [state(s, top_k=top_k) for s in range(30)]) == plain
    assert plain != logits.argmax(1).tolist()


def test_top_k_one_is_greedy_for_its_own_row_only() -> None:
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(3)).repeat(60, 1)
    mixed = [state(s, top_k=1 if s % 2 else 0) for s in range(60)]
    drawn = tokens(logits, mixed)
    best = int(logits[0].argmax())
    assert drawn[1::2] == [best] * 30
    assert len(set(drawn[::2])) > 5


# --- distribution -------------------------------------------------------------------------------------

LOGITS = [1.2, 0.3, -0.5, 0.3, 2.0, -1.0]
EVERY = {0, 1, 2, 3, 4, 5}
CASES: dict[str, tuple[dict[str, Any], set[int]]] = {  # parameters, and the tokens that may come
    "plain": ({}, EVERY),
    "temperature": ({"temperature": 0.6}, EVERY),
    "top_k": ({"top_k": 3}, {4, 0, 1, 3}),  # 1 and 3 are equal: both stay
    "top_p": ({"top_p": 0.8}, {4, 0, 1, 3}),  # .514 .231 .094 .094 .042 .026
    "min_p": ({"min_p": 0.2}, {4, 0}),  # the others are at most .183 times as likely as the best
    "all": ({"temperature": 1.5, "min_p": 0.15, "top_k": 4, "top_p": 0.68}, {4, 0}),  # .448 .263 .144 .144 at top-p
}
CHI_SQUARE_999 = [0.0, 10.83, 13.82, 16.27, 18.47, 20.52]  # by degrees of freedom, p = 0.001


def chi_square(drawn: list[int], expected: dict[int, float]) -> tuple[float, int]:
    n = len(drawn)
    assert set(drawn) <= set(expected)
    statistic = sum((drawn.count(i) - n * p) ** 2 / (n * p) for i, p in expected.items())
    return statistic, len(expected) - 1


def distribution(temperature: float, kept: set[int]) -> dict[int, float]:
    weights = {i: math.exp(LOGITS[i] / temperature) for i in kept}
    return {i: w / sum(weights.values()) for i, w in weights.items()}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("vary", ["seed", "position"])
def test_draws_follow_the_filtered_softmax(name: str, vary: str) -> None:
    (params, kept), n = CASES[name], 6000
    shared = state(**params).params
    states = [
        RowState("r", shared, i if vary == "seed" else 11, 1, [0] * (1 if vary == "seed" else 1 + i), [0], 0)
        for i in range(n)
    ]
    drawn = tokens(torch.tensor([LOGITS]).repeat(n, 1), states)
    statistic, freedom = chi_square(drawn, distribution(params.get("temperature", 1.0), kept))
    assert statistic < CHI_SQUARE_999[freedom], f"chi-square {statistic:.1f}"


def test_chi_square_notices_a_small_bias() -> None:
    """The test above can fail: a logit that is 0.25 too high is caught with the same number of draws."""
    n = 6000
    wrong = [x + (0.25 if i == 1 else 0.0) for i, x in enumerate(LOGITS)]
    drawn = tokens(torch.tensor([wrong]).repeat(n, 1), [state(i) for i in range(n)])
    statistic, freedom = chi_square(drawn, distribution(1.0, EVERY))
    assert statistic > CHI_SQUARE_999[freedom]


def test_successive_draws_of_one_seed_are_independent() -> None:
    n = 4000
    drawn = tokens(torch.zeros(n, 4), [RowState("r", state().params, 5, 1, [0] * (1 + i), [0], 0) for i in range(n)])
    pairs = [4 * a + b for a, b in zip(drawn[::2], drawn[1::2], strict=True)]
    statistic, _ = chi_square(pairs, dict.fromkeys(range(16), 1 / 16))
    assert statistic < 37.7  # 15 degrees of freedom, p = 0.001


# --- rows do not see each other -------------------------------------------------------------------------

MIXTURE: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"top_k": 1},
    {"top_k": 5, "temperature": 2.0},
    {"top_p": 0.7},
    {"min_p": 0.05, "top_p": 0.95},
    {"min_p": 0.1, "temperature": 0.3},
    {"top_k": 10**9, "temperature": 1.3},
]


def test_rows_do_not_depend_on_their_neighbours() -> None:
    logits = torch.randn(24, 97, generator=torch.Generator().manual_seed(4)) * 2
    states = [state(seed=100 + i, outputs=i % 5, **MIXTURE[i % len(MIXTURE)]) for i in range(24)]
    alone = [tokens(logits[i : i + 1], [states[i]])[0] for i in range(24)]
    assert tokens(logits, states) == alone
    order = torch.randperm(24, generator=torch.Generator().manual_seed(5)).tolist()
    assert tokens(logits[order], [states[i] for i in order]) == [alone[i] for i in order]


def test_a_draw_depends_on_seed_and_position_only() -> None:
    logits = torch.zeros(1, 5000)
    first = tokens(logits, [state(7, 3)])
    assert tokens(logits, [state(7, 3)]) == first
    assert tokens(logits, [state(8, 3)]) != first
    assert tokens(logits, [state(7, 4)]) != first
    moved = RowState("other", state().params, 7, 40, [2] * 43, [9], 42)  # another prompt, also 3 tokens of output
    assert tokens(logits, [moved]) == first


def test_a_draw_is_the_race_over_the_noise() -> None:
    """The rule that faster samplers must reproduce, written down."""
    logits = torch.randn(8, 33, generator=torch.Generator().manual_seed(6))
    seeds = [-(2**63), -1, 0, 1, 2**40, 5, 6, 2**63 - 1]
    noise = exponential_noise(torch.tensor(seeds), torch.full((8,), 2), 33)
    arrival = noise / (logits / 0.7).softmax(1)
    assert tokens(logits, [state(s, 2, temperature=0.7) for s in seeds]) == arrival.argmin(1).tolist()


# --- what cannot be sampled -----------------------------------------------------------------------------


def test_unusable_rows_are_reported_and_harm_no_other() -> None:
    good = torch.tensor([1.0, 3.0, 2.0])
    nan, one_nan = torch.full((3,), math.nan), torch.tensor([1.0, math.nan, 2.0])
    nothing, too_much = torch.full((3,), -INF), torch.tensor([0.0, INF, 1.0])
    one_left = torch.tensor([-INF, -INF, 0.0])
    logits = torch.stack([good, nan, one_nan, nothing, too_much, one_left, good])
    for params in ({"temperature": 0}, {}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.5}):
        states = [state(i, **params) for i in range(7)]
        out = sample(logits, states)
        assert out.bad.tolist() == [False, True, True, True, True, False, False]
        assert ((out.ids >= 0) & (out.ids < 3)).all()
        assert out.ids[5].item() == 2
        alone = [tokens(good[None], [states[i]])[0] for i in (0, 6)]
        assert [out.ids[0].item(), out.ids[6].item()] == alone


def test_unfinished_prompts_count_no_token() -> None:
    logits = torch.randn(3, 10, generator=torch.Generator().manual_seed(7))
    states = [state(i, logprobs=2 if i == 1 else None) for i in range(3)]
    out = sample(logits, states, [True, False, True])
    assert out.counts.tolist() == [1, 0, 1]
    assert out.ids.shape == (3, 1)
    assert out.ids.dtype == out.counts.dtype == torch.int64
    assert out.logprobs is None  # only the unfinished one asks
    whole = tokens(logits, states)
    assert [out.ids[0].item(), out.ids[2].item()] == [whole[0], whole[2]]


def test_half_precision_logits_are_sampled_in_float32() -> None:
    logits = torch.randn(20, 64, generator=torch.Generator().manual_seed(8)).bfloat16()
    states = [state(i, top_p=0.9) for i in range(20)]
    assert tokens(logits, states) == tokens(logits.float(), states)


# --- log-probabilities ------------------------------------------------------------------------------------


class Shift:
    """A processor that changes every logit in place."""

    def prepare(self, plan: Any, batch: ForwardBatch) -> None: ...

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        logits[:, 0] += 100.0
        return logits


def test_logprobs_are_of_the_untouched_logits() -> None:
    logits = torch.randn(3, 12, generator=torch.Generator().manual_seed(9))
    states = [state(0, temperature=0, logprobs=3), state(1, temperature=0), state(2, temperature=0, logprobs=0)]
    out = TorchSampler([Shift()]).sample(logits.clone(), batch_of(states))
    assert out.ids.flatten().tolist() == [0, 0, 0]
    assert out.logprobs is not None
    raw = logits.log_softmax(1)
    torch.testing.assert_close(out.logprobs.values[:, 0], raw[:, 0])
    assert out.logprobs.ids[:, 1:].tolist() == raw.topk(3).indices.tolist()
    rows = out.logprobs.to_rows([s.params.logprobs for s in states])
    assert rows[1] is None
    assert [len(row.ids[0]) for row in rows if row is not None] == [4, 1]


def test_logprobs_only_when_asked() -> None:
    assert sample(torch.zeros(2, 5), [state(0), state(1)]).logprobs is None
    whole = sample(torch.zeros(2, 5), [state(0, logprobs=-1), state(1, logprobs=1)]).logprobs
    assert whole is not None
    assert whole.ids.shape == (2, 6)
