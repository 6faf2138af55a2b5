"""Traces on disk and what the reader makes of them: files, damage, views."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stage1.trace.events import (
    KINDS,
    Event,
    EventsLost,
    RequestAdded,
    RequestFinished,
    StepScheduled,
    TokensSampled,
    TraceStart,
)
from stage1.trace.reader import Trace, TraceError, read_trace
from stage1.trace.sinks import JsonLinesSink

MakeEvents = Callable[[], list[Event]]

START = TraceStart(0.0, 1.7e9, 2, "tiny", 4, 8, 4)


def test_every_kind_survives_json_and_starts_with_its_kind(good_events: MakeEvents) -> None:
    for event in [*good_events(), EventsLost(1.0, 3)]:
        line = msgspec.json.encode(event)
        row = msgspec.json.decode(line)
        assert next(iter(row)) == "kind"
        assert msgspec.convert(row, KINDS[row["kind"]]) == event


def test_a_file_is_flushed_when_a_request_ends_and_drops_what_comes_after_close(
    tmp_path: Path, good_events: MakeEvents
) -> None:
    path, events = tmp_path / "run.jsonl", good_events()
    sink = JsonLinesSink(path)
    ends = [i for i, event in enumerate(events) if isinstance(event, RequestFinished)]
    for event in events[: ends[0] + 1]:
        sink.write(event)
    assert read_trace(path).events == events[: ends[0] + 1]
    sink.close()
    sink.close()
    sink.write(events[-1])
    assert len(read_trace(path).events) == ends[0] + 1


def test_a_path_that_cannot_be_written_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing/run\.jsonl.*No such file.*--trace"):
        JsonLinesSink(tmp_path / "missing" / "run.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_ends_the_trace_and_not_the_engine(
    caplog: pytest.LogCaptureFixture, good_events: MakeEvents
) -> None:
    sink = JsonLinesSink("/dev/full")
    with caplog.at_level(logging.WARNING):
        for event in good_events():
            sink.write(event)
        sink.close()
    assert len(caplog.records) == 1
    assert "/dev/full ends here" in caplog.text


def test_a_crash_may_cut_the_file_anywhere(tmp_path: Path, good_events: MakeEvents) -> None:
    path, events = tmp_path / "run.jsonl", good_events()
    lines = [msgspec.json.encode(event) + b"\n" for event in events]
    data = b"".join(lines)
    for cut in (len(lines[0]), *range(len(data) - 200, len(data) + 1)):
        path.write_bytes(data[:cut])
        trace = read_trace(path)
        whole = data[:cut].count(b"\n")
        assert trace.events == events[:whole]
        assert trace.truncated == (not data[:cut].endswith(b"\n"))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "an event is an object with a kind"),
        (b'{"t":1}', "an event is an object with a kind"),
        (b'{"kind":3}', "an event is an object with a kind"),
        (b'{"kind":"blocks_taken","t":1,"req_id":"a"}', "blocks_taken: .*block_ids"),
        (b'{"kind":"blocks_taken","t":"1","req_id":"a","block_ids":[]}', r"blocks_taken: .*\$\.t"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: bytes, what: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(msgspec.json.encode(START) + b"\n" + line + b"\n" + msgspec.json.encode(START) + b"\n")
    with pytest.raises(TraceError, match=rf"run\.jsonl, line 2: {what}"):
        read_trace(path)


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot read the trace"):
        read_trace(tmp_path / "none.jsonl")
    (tmp_path / "empty").touch()
    with pytest.raises(TraceError, match="first event must be a trace_start"):
        read_trace(tmp_path / "empty")


def test_kinds_of_later_stages_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    message = {"kind": "message_sent", "t": 0.5, "rank": 3}
    later = {**msgspec.to_builtins(RequestAdded(1.0, "a", 3)), "grammar": "json"}  # a field that is new
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in (START, message, later)))
    trace = read_trace(path)
    assert trace.other == [message]
    assert trace.events == [START, RequestAdded(1.0, "a", 3)]


def test_views_of_steps_and_requests(good_events: MakeEvents) -> None:
    trace = Trace(good_events())
    assert trace.start == START
    assert list(trace.steps) == [1, 2, 3, 4]
    assert trace.end == 4.6
    step = trace.steps[1]
    assert (step.t, step.t_done, step.num_tokens, step.sampled) == (1.0, 1.5, 5, {"a": [7]})
    a, b = trace.requests["a"], trace.requests["b"]
    assert (a.added, a.first_scheduled, a.first_token, a.finished, a.reason) == (0.1, 1.0, 1.5, 3.6, "length")
    assert (a.token_ids, a.token_times, a.steps) == ([7, 8], [1.5, 3.5], [1, 3])
    assert a.ttft == pytest.approx(1.4)
    assert a.itl == [2.0]
    assert (b.preempted, b.steps, b.itl) == ([3.0], [2, 4], [])


def test_views_of_blocks(good_events: MakeEvents) -> None:
    trace = Trace(good_events())
    assert trace.blocks_at(1) == {0: ("a",), 1: ("a",)}
    assert trace.blocks_at(2) == {0: ("a", "b"), 1: ("a",), 2: ("b",)}
    assert trace.blocks_at(3) == {0: ("a",), 1: ("a",)}
    assert trace.holdings_at(4) == {"b": [1, 0]}
    assert [trace.computed_at(step) for step in trace.steps] == [{"a": 5}, {"a": 5, "b": 5}, {"a": 6}, {"b": 6}]
    with pytest.raises(ValueError, match="no step 9 in the trace; it has steps 1 to 4"):
        trace.blocks_at(9)


def test_tokens_behind_the_end_do_not_count_and_a_used_id_may_come_again() -> None:
    trace = Trace(
        [
            START,
            RequestAdded(0.0, "a", 3),
            StepScheduled(1.0, 1, {"a": (0, 3)}, 1, 0),
            TokensSampled(2.0, 1, {"a": [5, 6, 7]}),
            RequestFinished(2.0, "a", "stop", 2),
            RequestAdded(3.0, "b", 1),
        ]
    )
    assert trace.requests["a"].token_ids == [5, 6]
    assert trace.requests["a"].arrivals == [2.0]
    again = Trace([*trace.events, RequestAdded(4.0, "a", 9)])
    assert list(again.requests) == ["b", "a"]
    assert again.requests["a"].token_ids == []
