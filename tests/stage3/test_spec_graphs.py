"""Which graph a step with drafts takes: one that holds it, and the smallest; captured without a device here."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stage2.graphs import StepGraph, StepGraphs, graph_sizes
from stage2.runner import StepLimits
from stage3.spec import graphs
from stage3.spec.graphs import DraftGraphs, drafts_behind, verify_sizes


@pytest.fixture
def captured(monkeypatch):
    """Graphs for settings; from ``most`` tokens on the memory does not suffice."""
    most = [1 << 30]

    def fake(size, pool, compute, buffers):
        if size.num_tokens >= most[0]:
            raise torch.OutOfMemoryError
        return StepGraph(size, None, None, None)

    monkeypatch.setattr(graphs, "capture_step", fake)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def run(max_reqs: int, max_tokens: int, max_batch: int, width: int, limit: int = 1 << 30) -> DraftGraphs:
        most[0] = limit
        made = DraftGraphs()
        limits = StepLimits(max_reqs, max_tokens, 1024, 16)
        made.capture_verifying(verify_sizes(limits, max_batch, width), None, None, None)
        return made

    return run


@given(
    max_reqs=st.integers(1, 300),
    max_tokens=st.integers(1, 9000),
    max_batch=st.integers(1, 400),
    width=st.integers(2, 9),
)
def test_sizes_come_largest_first_and_stay_within_the_limits(max_reqs, max_tokens, max_batch, width) -> None:
    sizes = verify_sizes(StepLimits(max_reqs, max_tokens, 1024, 16), max_batch, width)
    assert [size.num_tokens for size in sizes] == sorted((size.num_tokens for size in sizes), reverse=True)
    assert len(set(sizes)) == len(sizes)
    for size in sizes:
        assert size.num_tokens <= max_tokens
        assert size.num_reqs <= min(max_reqs, max_batch, size.num_tokens)
        assert size.max_draws == width
    if width > 8:
        assert sizes == []
    elif width <= max_tokens:
        assert min(size.num_reqs for size in sizes if not size.num_chunks) == min(1, max_reqs)


def test_a_step_takes_the_smallest_graph_that_holds_it(captured) -> None:
    made = captured(max_reqs=64, max_tokens=2048, max_batch=32, width=4)

    def find(*counts: int):
        array = np.array(counts, np.int32)
        graph = made.find(len(counts), int(array.sum()), array)
        return None if graph is None else (graph.size.num_reqs, graph.size.num_tokens)

    assert find(4) == (1, 4)
    assert find(1, 4, 2) == (4, 16)
    assert find(*[4] * 32) == (32, 128)
    assert find(*[1] * 33) is None  # nothing is verified of so many
    assert find(4, 5) == (32, 64)  # half a prompt of five tokens is more than a few
    assert find(*[4] * 20, 100) == (32, 192)
    assert find(*[4] * 20, 500) == (32, 640)
    assert find(*[4] * 20, 1000) is None
    assert find(*[4] * 20, *[10] * 8) == (32, 192)
    assert find(*[4] * 20, *[10] * 9) is None


def test_what_does_not_fit_is_left_out(captured, caplog) -> None:
    made = captured(max_reqs=64, max_tokens=2048, max_batch=32, width=4, limit=100)
    assert max(graph.size.num_tokens for graph in made.verifying) == 96
    assert [graph.size.num_tokens for graph in made.mixed] == [64]
    assert "no CUDA graph verifies drafts in 1024 tokens" in caplog.text


@given(
    max_reqs=st.integers(1, 300),
    most=st.integers(1, 320),
    sees_all=st.booleans(),
    num_reqs=st.integers(1, 300),
    num_chunks=st.integers(0, 8),
    num_tokens=st.integers(1, 512),
    cut=st.sampled_from([None, False, True]),
)
def test_behind_every_graph_there_is_what_its_steps_need(
    max_reqs, most, sees_all, num_reqs, num_chunks, num_tokens, cut
):
    plain = StepGraphs()
    cuts = (None,) if cut is None else (False, True)
    made = [StepGraph(size, None, None, None) for size in graph_sizes(max_reqs, 1024, cuts)]
    plain._decode = sorted((g for g in made if not g.size.num_chunks), key=lambda graph: graph.size.num_reqs)
    plain._mixed = sorted((g for g in made if g.size.num_chunks), key=lambda graph: graph.size.num_tokens)
    behind = drafts_behind([graph.size for graph in made], most, sees_all)
    assert len(set(behind)) == len(behind)
    num_reqs = min(num_reqs, max_reqs)
    num_chunks = min(num_chunks, num_reqs)
    num_tokens = max(num_tokens, num_reqs + num_chunks) if num_chunks else num_reqs
    graph = plain.find(num_reqs, num_tokens, num_chunks, cut)
    guesses = num_reqs <= most
    if graph is not None and (guesses or sees_all):
        assert (made.index(graph), guesses) in behind


def test_no_graph_is_captured_that_no_step_takes() -> None:
    sizes = [size for size in graph_sizes(128, 64) if not size.num_chunks]
    behind = drafts_behind(sizes, 50, True)
    assert [(sizes[i].num_reqs, guesses) for i, guesses in behind if sizes[i].num_reqs >= 48] == [
        *[(128, False), (96, False), (64, True), (64, False), (48, True)]
    ]
    assert [guesses for _, guesses in drafts_behind(sizes, 50, False)] == [True] * (len(sizes) - 2)
