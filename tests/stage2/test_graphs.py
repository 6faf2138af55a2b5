"""Which steps find a graph: sizes and choice, without a GPU (what a graph computes is tested on one)."""

import logging
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stage2 import graphs
from stage2.graphs import MAX_CHUNKS, Size, StepGraph, StepGraphs, graph_sizes, mixed_tokens, most_graph_tokens


@pytest.fixture
def capture(monkeypatch):
    """Capture without a device; ``limit`` is the number of tokens from which the memory does not suffice."""
    limit = [1 << 30]

    def fake(size, pool, compute, buffers):
        if size.num_tokens >= limit[0]:
            raise torch.OutOfMemoryError
        return StepGraph(size, None, None, None)

    monkeypatch.setattr(graphs, "capture_step", fake)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def run(max_reqs: int, max_tokens: int, most: int = 1 << 30, cuts=(None,)) -> StepGraphs:
        limit[0] = most
        made = StepGraphs()
        made.capture(graph_sizes(max_reqs, max_tokens, cuts), None, None)
        return made

    return run


def test_sizes_come_largest_first_and_reach_the_limits() -> None:
    for max_reqs, max_tokens in ((1, 1), (1, 64), (6, 8192), (256, 8192), (300, 300), (1024, 2048)):
        sizes = graph_sizes(max_reqs, max_tokens)
        decode = [size.num_reqs for size in sizes if not size.num_chunks]
        mixed = [size.num_tokens for size in sizes if size.num_chunks]
        assert decode == sorted(set(decode), reverse=True)
        assert decode[0] == max_reqs
        assert decode[-1] == 1
        assert mixed == sorted(set(mixed), reverse=True)
        assert all(tokens <= max_tokens for tokens in mixed)
        assert all(size.num_reqs <= min(max_reqs, size.num_tokens) for size in sizes)


def test_every_decode_batch_has_a_graph_that_is_not_much_larger(capture) -> None:
    made = capture(256, 8192)
    for num_reqs in range(1, 257):
        size = made.find(num_reqs, num_reqs, 0).size
        assert size.num_chunks == 0
        assert num_reqs <= size.num_reqs <= max(2 * num_reqs, 1)
        assert size.num_reqs - num_reqs < 64
    assert made.find(257, 257, 0) is None


def test_mixed_steps_take_the_next_64_tokens(capture) -> None:
    made = capture(256, 512)
    assert made.find(256, 383, 1).size == Size(256, 384, MAX_CHUNKS, 384)
    assert made.find(1, 2, 1).size == Size(64, 64, MAX_CHUNKS, 64)
    assert made.find(3, 512, 3).size == Size(256, 512, MAX_CHUNKS, 512)
    assert made.find(3, 513, 3) is None
    assert made.find(9, 60, MAX_CHUNKS + 1) is None


def test_larger_steps_have_graphs_where_the_model_is_small(capture) -> None:
    made = capture(256, 5000)
    assert made.find(3, 513, 3).size == Size(256, 768, 12, 768)
    assert made.find(256, 1025, 24).size == Size(256, 1536, 24, 1536)
    assert made.find(256, 1025, 25) is None
    assert made.find(1, 4097, 1).size == Size(256, 5000, 78, 5000)
    assert made.find(1, 5001, 1) is None


@given(most=st.integers(1, 20_000))
def test_a_mixed_step_is_padded_by_half_at_most(most) -> None:
    sizes = mixed_tokens(most)
    assert sizes == sorted(set(sizes))
    assert max(sizes, default=0) == (most if most >= 512 else most // 64 * 64)
    assert all(after <= max(1.5 * before, before + 64) for before, after in pairwise(sizes))


def test_of_two_graphs_of_a_batch_the_wanted_one_is_taken(capture) -> None:
    made = capture(64, 0, cuts=(False, True))
    for num_reqs, cut in product(range(1, 65), (False, True)):
        size = made.find(num_reqs, num_reqs, 0, cut).size
        assert size.cut == cut
        assert size.num_reqs == capture(64, 0).find(num_reqs, num_reqs, 0).size.num_reqs
    made._decode = [graph for graph in made._decode if graph.size.num_reqs != 32 or graph.size.cut]
    assert made.find(30, 30, 0, False).size == Size(32, 32, 0, 1, cut=True), "any of its size does, if slower"


def test_batches_that_are_never_cut_have_one_graph() -> None:
    sizes = graph_sizes(1024, 0, (False, True))
    assert [size.cut for size in sizes if size.num_reqs == 512] == [False, True]
    assert [size.cut for size in sizes if size.num_reqs == 576] == [None]


def test_how_large_a_step_is_worth_a_graph_depends_on_the_model() -> None:
    assert [most_graph_tokens(n) for n in (106_000_000, 440_000_000, 6_950_000_000)] == [9433, 2272, 512]


def test_where_memory_is_short_larger_graphs_or_single_launches_serve(capture, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        made = capture(16, 512, most=8)
    assert "graphs are left out" in caplog.text
    assert made.find(3, 3, 0).size.num_reqs == 4
    assert made.find(5, 5, 0) is None
    assert made.find(2, 40, 1) is None


def test_nothing_is_found_before_a_capture() -> None:
    assert StepGraphs().find(1, 1, 0) is None
    assert StepGraphs().find(2, 9, 1) is None
