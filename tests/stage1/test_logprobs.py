"""Log-probabilities: values, ranks and sizes, and prompts in slices."""

from __future__ import annotations

import math

import pytest
import torch

from stage1.logprobs import alternatives, gather_logprobs, prompt_logprobs


def random_logits(rows: int, vocab: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("k", [0, 1, 5])
def test_sizes_values_and_order(k: int) -> None:
    logits = random_logits(4, 20)
    chosen = torch.tensor([0, 19, 7, 7])
    out = gather_logprobs(logits, chosen, k)
    assert out.ids.shape == out.values.shape == (4, 1 + k)
    assert out.ids.dtype == torch.int64
    assert out.values.dtype == torch.float32
    for row in range(4):
        weights = [math.exp(x) for x in logits[row].tolist()]
        plain = [math.log(w / sum(weights)) for w in weights]
        order = sorted(range(20), key=lambda t, p=plain: -p[t])  # type: ignore[misc]
        assert out.ids[row].tolist() == [int(chosen[row]), *order[:k]]
        assert out.values[row].tolist() == pytest.approx([plain[t] for t in out.ids[row].tolist()], abs=1e-5)
        assert int(out.ranks[row]) == 1 + order.index(int(chosen[row]))


def test_chosen_best_is_the_same_float() -> None:
    logits = random_logits(50, 3000, 1)
    out = gather_logprobs(logits, logits.argmax(1), 1)
    assert torch.equal(out.values[:, 0], out.values[:, 1])
    assert torch.equal(out.ids[:, 0], out.ids[:, 1])
    assert out.ranks.tolist() == [1] * 50


def test_rank_counts_strictly_better_tokens() -> None:
    logits = torch.tensor([[1.0, 2.0, 2.0, 0.0, 2.0]])
    ranks = [int(gather_logprobs(logits, torch.tensor([t]), 0).ranks) for t in range(5)]
    assert ranks == [4, 1, 1, 5, 1]


def test_whole_vocabulary_sums_to_one() -> None:
    logits = random_logits(3, 500, 2)
    out = gather_logprobs(logits, torch.zeros(3, dtype=torch.int64), 500)
    torch.testing.assert_close(out.values[:, 1:].exp().sum(1), torch.ones(3))
    assert sorted(out.ids[0, 1:].tolist()) == list(range(500))
    assert gather_logprobs(logits, torch.zeros(3, dtype=torch.int64), 10**6).ids.shape == (3, 501)


def test_impossible_tokens_are_minus_infinity() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0]])
    out = gather_logprobs(logits, torch.tensor([1]), 3)
    assert out.values[0].tolist() == pytest.approx([-math.inf, math.log(0.5), math.log(0.5), -math.inf])
    assert int(out.ranks) == 3


def test_large_logits_keep_their_precision() -> None:
    logits = torch.tensor([[1000.0, 999.0]])
    out = gather_logprobs(logits, torch.tensor([1]), 0)
    assert float(out.values) == pytest.approx(-1 - math.log(1 + math.exp(-1)), abs=1e-6)


@pytest.mark.parametrize("slice_rows", [1, 2, 3, 7, 8, 64])
def test_prompt_in_slices(slice_rows: int) -> None:
    hidden, weight = random_logits(7, 4, 3), random_logits(4, 30, 4)
    next_ids = torch.tensor([0, 5, 29, 5, 1, 2, 3])
    widths: list[int] = []

    def to_logits(rows: torch.Tensor) -> torch.Tensor:
        widths.append(len(rows))
        return rows @ weight

    out = prompt_logprobs(hidden, next_ids, 2, to_logits, slice_rows)
    assert max(widths) <= slice_rows
    assert sum(widths) == 7
    whole = gather_logprobs(hidden @ weight, next_ids, 2)
    assert out.ids == whole.ids.tolist()
    assert out.ranks == whole.ranks.tolist()
    for values, expected in zip(out.values, whole.values.tolist(), strict=True):
        assert values == pytest.approx(expected, abs=1e-5)


def test_prompt_without_rows() -> None:
    out = prompt_logprobs(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), 2, lambda rows: rows)
    assert (out.ids, out.values, out.ranks) == ([], [], [])


def test_number_of_alternatives() -> None:
    assert [alternatives(k, 100) for k in (None, 0, 5, -1)] == [None, 0, 5, 100]
