"""Drafts from the text itself: the rules, a slow search beside both fast ones, and the limits."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stage3.spec import ngram_kernel
from stage3.spec.ngram import NgramRules, propose, propose_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def slow(tokens: list[int], rules: NgramRules, room: int) -> list[int]:
    """Every length from the longest, every place from the first (or the last)."""
    for size in range(rules.prompt_lookup_max, rules.prompt_lookup_min - 1, -1):
        places = [i for i in range(len(tokens) - size) if tokens[i : i + size] == tokens[len(tokens) - size :]]
        if places:
            follow = (places[-1] if rules.latest else places[0]) + size
            return tokens[follow : follow + max(min(rules.num_speculative_tokens, room), 0)]
    return []


def on_device(
    texts: list[list[int]], rules: NgramRules, max_model_len: int, width: int, propose_rows=propose_rows, **kwargs: int
) -> list[list[int]]:
    """``propose_rows`` over a table in another order, whose unused places look like tokens."""
    table = torch.full((len(texts) + 2, width + 3), 1, dtype=torch.int32, device=DEVICE)[:, 3:]
    for i, text in enumerate(texts):
        table[-1 - i, : len(text)] = torch.tensor(text, dtype=torch.int32)
    before = table.clone()
    rows = len(table) - 1 - torch.arange(len(texts), device=DEVICE)
    lengths = torch.tensor([len(text) for text in texts], dtype=torch.int64, device=DEVICE)
    drafts = propose_rows(table, rows, lengths, rules, max_model_len, **kwargs)
    assert drafts.ids.shape == (len(texts), rules.num_speculative_tokens)
    assert (drafts.ids.dtype, drafts.counts.dtype) == (torch.int64, torch.int64)
    assert torch.equal(table, before)
    counts = drafts.counts.tolist()
    for ids, count in zip(drafts.ids.tolist(), counts, strict=True):
        assert not any(ids[count:])
    return [ids[:count] for ids, count in zip(drafts.ids.tolist(), counts, strict=True)]


@pytest.mark.parametrize(
    ("tokens", "shortest", "longest", "k", "latest", "drafts"),
    [
        ([1, 2, 3, 4, 1, 2, 3], 2, 2, 2, False, [4, 1]),
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 3, 3, 1, False, [9]),
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], 3, 3, 1, True, [8]),
        ([5, 2, 3, 7, 1, 2, 3, 6, 1, 2, 3], 2, 3, 1, False, [6]),  # the longer match, though a shorter comes first
        ([7, 7, 7, 7], 3, 3, 3, False, [7]),
        ([7, 7, 7, 7], 1, 3, 3, True, [7]),
        ([1, 2], 2, 2, 3, False, []),
        ([1, 2, 3, 4], 1, 3, 3, False, []),
        ([1, 2, 1], 2, 3, 3, False, []),  # the match is shorter than the shortest
        ([1, 2, 3, 1, 1, 2], 3, 3, 3, False, []),  # what stands in front of the text is not a part of it
        ([4], 1, 1, 3, False, []),
        ([], 1, 1, 3, False, []),
    ],
)
def test_rules(tokens, shortest, longest, k, latest, drafts):
    rules = NgramRules(k, longest, shortest, latest)
    assert propose(tokens, rules, 100) == drafts
    assert slow(tokens, rules, 100) == drafts
    assert on_device([tokens], rules, 100, 16) == [drafts]
    assert on_device([tokens], rules, 100, 16, ngram_kernel.propose_rows) == [drafts]


rows = st.lists(st.integers(1, 3), max_size=14)


@settings(max_examples=600, deadline=None)
@given(st.lists(rows, min_size=1, max_size=5), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5), st.booleans())
def test_both_searches_find_what_the_slow_one_finds(texts, first, second, k, latest):
    rules = NgramRules(k, max(first, second), min(first, second), latest)
    max_model_len = 15
    expected = [slow(tokens, rules, max_model_len - 1 - len(tokens)) for tokens in texts]
    assert [propose(tokens, rules, max_model_len - 1 - len(tokens)) for tokens in texts] == expected
    assert on_device(texts, rules, max_model_len, max_model_len + 1) == expected


def test_the_kernel_finds_what_the_slow_search_finds():
    chance = random.Random(5)
    for size in (1, 3, 7, 40, 1024, 1025, 1026, 2100):
        for _ in range(6):
            texts = [[chance.randrange(1, 5) for _ in range(max(size - chance.randrange(3), 0))] for _ in range(4)]
            shortest = chance.randrange(1, 8)
            rules = NgramRules(chance.randrange(1, 7), shortest + chance.randrange(4), shortest, chance.random() < 0.5)
            max_model_len = size + chance.randrange(1, 9)
            expected = [slow(text, rules, max_model_len - 1 - len(text)) for text in texts]
            assert on_device(texts, rules, max_model_len, max_model_len + 1, ngram_kernel.propose_rows) == expected
            assert on_device(texts, rules, max_model_len, max_model_len + 1) == expected


@pytest.mark.parametrize("tokens", [[1] * 30, [1, 2] * 15, [1, 1, 2] * 10, [1, 2, 1, 1, 2, 1, 1, 2, 1, 2] * 3])
@pytest.mark.parametrize("latest", [False, True])
def test_text_that_repeats_itself(tokens, latest):
    for longest in (1, 2, 4, 7, 40):
        rules = NgramRules(3, longest, 1, latest)
        assert propose(tokens, rules, 9) == slow(tokens, rules, 9)
        assert on_device([tokens], rules, 100, 33) == [slow(tokens, rules, 9)]


def test_no_draft_passes_the_longest_length():
    rules = NgramRules(5, 2, 1)
    text = [1, 2, 3, 4, 5, 6, 7, 1, 2]
    for max_model_len, count in ((20, 5), (13, 3), (11, 1), (10, 0), (9, 0)):
        for search in (propose_rows, ngram_kernel.propose_rows):
            assert on_device([text], rules, max_model_len, 21, search) == [[3, 4, 5, 6, 7][:count]]
        assert propose(text, rules, max_model_len - 1 - len(text)) == [3, 4, 5, 6, 7][:count]


def test_rows_are_taken_together_in_parts():
    texts = [[1, 2, 3, 1, 2], [3, 1, 3], [2], [], [1, 1, 1, 1]]
    rules = NgramRules(2, 3, 1)
    whole = on_device(texts, rules, 50, 12)
    assert on_device(texts, rules, 50, 12, block=24) == whole == [slow(text, rules, 9) for text in texts]
    assert on_device([], rules, 50, 12) == on_device([], rules, 50, 12, ngram_kernel.propose_rows) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"prompt_lookup_min": 4, "prompt_lookup_max": 3}, "prompt_lookup_min is 4 and prompt_lookup_max 3"),
        ({"prompt_lookup_min": 0}, "prompt_lookup_min is 0"),
        ({"num_speculative_tokens": 0}, "num_speculative_tokens is 0"),
        ({"prompt_lookup_max": -1}, "prompt_lookup_max is -1"),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        NgramRules(**{"num_speculative_tokens": 3, **wrong})
