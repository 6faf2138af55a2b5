"""Counters of drafts, room ahead of the engine, and the tokens that a drafting layer reads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.params import SamplingParams
from stage1.records import StepStats
from stage1.request import Request
from stage2.block_pool import BlockPool
from stage2.kv_manager import PagedKVManager
from stage3.spec.accept import AcceptanceCounter
from stage3.spec.lookahead import LookaheadKV
from stage3.spec.scheduling import keep_until_end
from stage3.spec.shifted import next_tokens

EOS = 2


def request(num_prompt: int = 3, limit: int = 100, **params: object) -> Request:
    return Request("a", [5] * num_prompt, SamplingParams(eos_token_ids=[EOS], **params), limit)


# --- counters ------------------------------------------------------------------------------------------


def test_what_is_accepted_behind_an_end_does_not_count():
    counter = AcceptanceCounter(5)
    sampled = [11, 12, EOS, 14, 15, 16]  # five accepted drafts and one token more
    kept = keep_until_end(request(), sampled)
    assert kept == [11, 12, EOS]
    counter.observe(5, len(sampled), len(kept))
    assert counter.num_tokens == 3
    assert counter.acceptance_length == 3.0
    assert counter.accepted_per_position == [1, 1, 1, 0, 0]


def test_before_the_first_verification_there_is_no_figure():
    counter = AcceptanceCounter(2)
    assert counter.acceptance_length is None
    assert counter.acceptance_rate is None
    counter.fill(stats := StepStats())
    assert (stats.drafts, stats.accepted_per_position) == (0, [0, 0])


def test_totals():
    counter = AcceptanceCounter(3)
    for num_drafts, num_sampled in ((3, 4), (3, 1), (2, 2)):
        counter.observe(num_drafts, num_sampled, num_sampled)
    assert counter.accepted_per_position == [2, 1, 1]
    assert counter.num_accepted == 4
    assert counter.acceptance_length == 7 / 3
    assert counter.acceptance_rate == 4 / 8
    counter.fill(stats := StepStats())
    counter.observe(3, 4, 4)
    assert (stats.drafts, stats.accepted_per_position) == (8, [2, 1, 1])


@pytest.mark.parametrize(
    ("params", "limit", "kept"),
    [
        ({}, 100, [7, EOS]),
        ({"ignore_eos": True}, 100, [7, EOS, 8, EOS, 9]),
        ({"min_tokens": 3}, 100, [7, EOS, 8, EOS]),
        ({"stop_token_ids": [7]}, 100, [7]),
        ({"ignore_eos": True}, 6, [7, EOS, 8]),
        ({"ignore_eos": True}, 4, [7]),
    ],
)
def test_the_end_of_a_request_cuts_what_was_sampled(params, limit, kept):
    assert keep_until_end(request(3, limit, **params), [7, EOS, 8, EOS, 9]) == kept


# --- room ahead ----------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.lists(st.integers(1, 4), max_size=12), st.integers(20, 60))
def test_a_drafter_always_has_room(block_size, lookahead, steps, limit):
    """Asked only where the engine's tokens leave their last block, as the scheduler asks."""
    kv = LookaheadKV(PagedKVManager(BlockPool(100), block_size), lookahead)
    req = request(limit=limit)
    owned, computed = 0, 0
    for step in steps:
        upto = min(computed + step, limit)
        if upto - computed > -computed % block_size:
            owned += len(kv.allocate_slots(req, upto))
        computed = upto
        assert owned * block_size >= min(computed + lookahead, limit)
        assert owned <= -(-limit // block_size)  # a table of the longest request has no more places
    kv.free(req)
    assert kv.usage == 0.0


def test_lookahead_is_given_up_where_blocks_are_short():
    kv = LookaheadKV(PagedKVManager(BlockPool(3), 4), 5)
    req = request()
    assert len(kv.allocate_slots(req, 8)) == 2  # four would be wanted
    assert len(kv.allocate_slots(req, 9)) == 1
    assert kv.allocate_slots(req, 13) is None
    assert kv.usage == 1.0
    kv.free(req)
    assert len(kv.allocate_slots(req, 1)) == 3


def test_everything_else_is_passed_on():
    inner = PagedKVManager(BlockPool(4), 4)
    kv = LookaheadKV(inner, 2)
    req = request()
    hit = kv.lookup(req)
    assert hit == inner.lookup(req)
    kv.adopt(req, hit)
    kv.allocate_slots(req, 3, 2)
    kv.commit(req)
    assert (kv.num_blocks, kv.block_size, kv.usage) == (4, 4, 0.75)


# --- the tokens of a drafting layer ----------------------------------------------------------------------


def test_behind_a_piece_of_a_prompt_comes_the_prompt():
    prompt, drawn = [30, 31, 32, 33, 34, 35], 99
    table = torch.zeros(3, 10, dtype=torch.int32)
    table[2, :6] = torch.tensor(prompt)
    first = next_tokens(table, torch.full((4,), 2), torch.arange(4))
    assert first.tolist() == [31, 32, 33, 34]
    table[2, 6] = drawn
    assert next_tokens(table, torch.full((2,), 2), torch.arange(4, 6)).tolist() == [35, drawn]
