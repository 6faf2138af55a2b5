"""The rules: a good trace passes, and every planted fault is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stage1.trace.events import (
    BlocksFreed,
    BlocksTaken,
    Event,
    EventsLost,
    RequestAdded,
    RequestFinished,
    StepScheduled,
    TokensSampled,
    TraceStart,
)
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace

MakeEvents = Callable[[], list[Event]]

START = TraceStart(0.0, 1.7e9, 2, "tiny", 4, 8, 4)


def change(index: int, **fields: Any) -> Callable[[list[Event]], None]:
    def apply(events: list[Event]) -> None:
        events[index] = msgspec.structs.replace(events[index], **fields)

    return apply


def drop(*indices: int) -> Callable[[list[Event]], None]:
    def apply(events: list[Event]) -> None:
        for index in sorted(indices, reverse=True):
            del events[index]

    return apply


def insert(index: int, event: Event) -> Callable[[list[Event]], None]:
    return lambda events: events.insert(index, event)


def test_a_good_trace_has_no_violation(good_events: MakeEvents) -> None:
    assert check_trace(Trace(good_events())) == []


@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (change(7, block_ids=[1]), "b takes block 1 while a holds it"),
        (change(3, block_ids=[0, 0]), "a gets block 0, which it holds already"),
        (change(3, block_ids=[0, 8]), r"a gets block 8; the cache has \[0, 8\)"),
        (change(15, block_ids=[0]), r"a frees blocks \[0\] but holds blocks \[0, 1\]"),
        (drop(15), "at the end a still holds"),
        (drop(20), r"at the end b still holds blocks \[0, 1\]"),
        (drop(19, 20), "at the end b is not finished"),
        (drop(1), "a was never added"),
        (insert(5, RequestAdded(1.0, "a", 3)), "a is added while a request of that id is alive"),
        (drop(11), "b computes from token 0; it must go on from token 5"),
        (drop(6), "b computes from token 4; it must go on from token 0"),
        (change(6, num_tokens=0), "b computes from token 4; it must go on from token 0"),
        (change(12, tokens={"a": (6, 1)}), "a computes from token 6; it must go on from token 5"),
        (change(12, tokens={"a": (4, 2)}), "a computes from token 4; it must go on from token 5"),
        (change(17, tokens={"b": (4, 2)}), "b computes from token 4; it must go on from token 0"),
        (change(12, tokens={"a": (5, 0)}), "a is scheduled with 0 tokens"),
        (change(3, block_ids=[0]), "a computes up to token 5 but holds room for 4"),
        (change(12, step=2), "step 2 follows step 2"),
        (change(12, t=1.0), "time goes back"),
        (drop(4), "step 1 has a result without a plan"),
        (insert(6, TokensSampled(1.5, 1, {})), "step 1 has a result for the second time"),
        (change(13, ids={"b": [1]}), "b gets a token from step 3, which did not compute it"),
        (change(13, ids={"a": [8, 9]}), "a gets 2 tokens from a step with 0 drafts"),
        (change(9, ids={"b": [9]}), "b gets a token after computing 5 of its 6 tokens"),
        (change(5, ids={}), "a gets a token after computing 6 of its 5 tokens"),
        (change(14, num_output_tokens=3), "a ends with 3 tokens; 2 were sampled"),
        (change(14, num_output_tokens=1), "a ends with 1 tokens; 2 were sampled"),
        (insert(16, RequestFinished(3.6, "a", "stop", 2)), r"a has ended already \(RequestFinished\)"),
        (change(17, tokens={"b": (0, 6), "a": (6, 1)}), r"a has ended already \(StepScheduled\)"),
        (insert(16, BlocksTaken(3.7, "a", [5])), r"a has ended already \(BlocksTaken\)"),
        (insert(5, EventsLost(1.0, 12)), "12 events are missing"),
    ],
)
def test_a_planted_fault_is_found(fault: Callable[[list[Event]], None], what: str, good_events: MakeEvents) -> None:
    events = good_events()
    fault(events)
    violations = check_trace(Trace(events))
    assert any(re.search(what, violation) for violation in violations), violations


def test_a_running_engine_may_hold_blocks(good_events: MakeEvents) -> None:
    running = Trace(good_events()[:13])
    assert check_trace(running, complete=False) == []
    assert len(check_trace(running)) == 3  # a's blocks, and two requests that have not ended


def test_results_may_be_overlapped_but_not_out_of_order() -> None:
    events: list[Event] = [
        START,
        RequestAdded(0.0, "a", 3),
        BlocksTaken(0.0, "a", [0, 1]),
        StepScheduled(1.0, 1, {"a": (0, 3)}, 1, 0),
        StepScheduled(2.0, 2, {"a": (3, 1)}, 1, 0),
        TokensSampled(3.0, 1, {"a": [5]}),
        TokensSampled(4.0, 2, {"a": [6]}),
    ]
    assert check_trace(Trace(events), complete=False) == []
    events[5], events[6] = TokensSampled(3.0, 2, {"a": [6]}), TokensSampled(4.0, 1, {"a": [5]})
    assert any("comes after that of step 2" in text for text in check_trace(Trace(events), complete=False))


def test_rejected_drafts_are_computed_again() -> None:
    """Three drafts, of which one is accepted: two tokens come, two places of the cache are written again."""
    events: list[Event] = [
        START,
        RequestAdded(0.0, "a", 3),
        BlocksTaken(0.0, "a", [0, 1, 2]),
        StepScheduled(1.0, 1, {"a": (0, 3)}, 1, 0),
        TokensSampled(1.0, 1, {"a": [5]}),
        StepScheduled(2.0, 2, {"a": (3, 4)}, 1, 0, {"a": 3}),
        TokensSampled(2.0, 2, {"a": [6, 7]}),
        StepScheduled(3.0, 3, {"a": (5, 1)}, 1, 0),
        TokensSampled(3.0, 3, {"a": [8]}),
        RequestFinished(3.0, "a", "stop", 4),
        BlocksFreed(3.0, "a", [0, 1, 2]),
    ]
    assert check_trace(Trace(events)) == []
    events[7] = StepScheduled(3.0, 3, {"a": (7, 1)}, 1, 0)
    assert any("computes from token 7; it must go on from token 5" in text for text in check_trace(Trace(events)))
