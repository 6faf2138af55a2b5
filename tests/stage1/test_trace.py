"""What the tracer and the traced KV manager write, alone and under the real scheduler."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stage1.interfaces import Hit
from stage1.kv_manager import OneBlockKVManager
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import (
    CachedRequests,
    EngineCoreRequest,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
)
from stage1.request import Request, Status
from stage1.scheduler import StaticScheduler
from stage1.trace.events import (
    BlocksFreed,
    BlocksShared,
    BlocksTaken,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepScheduled,
    TokensSampled,
    TraceStart,
)
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace, read_trace
from stage1.trace.sinks import MemorySink, open_sinks
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event


class Clock:
    """Goes on by a millisecond at each look."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def make_tracer() -> tuple[Tracer, MemorySink]:
    sink = MemorySink()
    return Tracer([sink], Clock()), sink


def request(req_id: str, prompt: int = 3, **params: Any) -> Request:
    core = EngineCoreRequest(req_id, list(range(prompt)), SamplingParams(**params), priority=5)
    return Request.from_core_request(core, 100)


def plan(step: int, new: dict[str, int], cached: dict[str, int], scheduled: dict[str, int]) -> SchedulerOutput:
    """``new`` and ``cached``: req_id → tokens computed before."""
    return SchedulerOutput(
        step,
        [NewRequestData(r, [0], [], SamplingParams(), [0], n) for r, n in new.items()],
        CachedRequests(list(cached), list(cached.values())),
        scheduled,
    )


def test_tracer_writes_a_requests_way_through_two_steps() -> None:
    tracer, sink = make_tracer()
    tracer.start(start_event(1, "tiny", 100, 8, 8))
    req = request("a", max_tokens=2)
    assert tracer.admit(req) is True
    assert list(tracer.released()) == []
    first, second = plan(1, {"a": 0}, {}, {"a": 3}), plan(2, {}, {"a": 3}, {"a": 1})
    tracer.annotate(first)
    tracer.on_result(first, ModelRunnerOutput(["a"], [[7]]))
    tracer.annotate(second)
    tracer.on_result(second, ModelRunnerOutput(["a"], [[8]]))
    req.output_ids += [7, 8]
    req.status = Status.LENGTH
    assert tracer.on_finish(req) is False

    start, *events = sink.events
    assert isinstance(start, TraceStart)
    assert (start.t, start.stage, start.model, start.block_size, start.num_blocks) == (0.0, 1, "tiny", 100, 8)
    assert {"python", "torch"} <= set(start.versions)
    assert [msgspec.structs.replace(event, t=0.0) for event in events] == [
        RequestAdded(0.0, "a", 3, 2, 5),
        StepScheduled(0.0, 1, {"a": (0, 3)}, 1, 0),
        TokensSampled(0.0, 1, {"a": [7]}),
        StepScheduled(0.0, 2, {"a": (3, 1)}, 1, 0),
        TokensSampled(0.0, 2, {"a": [8]}),
        RequestFinished(0.0, "a", "length", 2),
    ]
    times = [event.t for event in sink.events]
    assert times == sorted(times)
    assert 0 < times[-1] < 0.1  # seconds since the start, not since the clock's origin


def test_tracer_counts_running_and_waiting() -> None:
    tracer, sink = make_tracer()
    for req_id in "abc":
        tracer.admit(request(req_id))
    tracer.annotate(plan(1, {"a": 0, "b": 2}, {}, {"b": 1, "a": 3}))  # the cache has two tokens of b
    tracer.annotate(plan(2, {}, {"b": 3}, {"b": 1}))  # a runs, but got nothing in this step
    preempting = plan(3, {"c": 0}, {}, {"c": 1})
    preempting.preempted = ["b"]
    tracer.annotate(preempting)
    tracer.on_finish(request("a"))
    tracer.annotate(plan(4, {}, {"c": 1}, {"c": 1}))
    depths = [(e.num_running, e.num_waiting) for e in sink.events if isinstance(e, StepScheduled)]
    assert depths == [(2, 1), (2, 1), (2, 1), (1, 1)]
    tokens = [list(e.tokens.items()) for e in sink.events if isinstance(e, StepScheduled)]
    assert tokens[:2] == [[("b", (2, 1)), ("a", (0, 3))], [("b", (3, 1))]]
    assert [e.req_id for e in sink.events if isinstance(e, RequestPreempted)] == ["b"]


def test_tokens_that_nobody_gets_are_not_in_the_trace() -> None:
    tracer, sink = make_tracer()
    for req_id in "abcd":
        tracer.admit(request(req_id))
    step = plan(1, dict.fromkeys("abcd", 0), {}, dict.fromkeys("abcd", 3))
    tracer.annotate(step)
    tracer.on_finish(request("b"))  # aborted while the step is in flight
    out = ModelRunnerOutput(list("abcd"), [[1], [2], [3], []], failed={"c": "not finite"})
    tracer.on_result(step, out)
    assert sink.events[-1] == msgspec.structs.replace(TokensSampled(0.0, 1, {"a": [1]}), t=sink.events[-1].t)


def test_an_empty_plan_leaves_no_event() -> None:
    tracer, sink = make_tracer()
    empty = plan(1, {}, {}, {})
    tracer.annotate(empty)
    tracer.on_result(empty, ModelRunnerOutput([], []))
    assert sink.events == []


def test_later_changes_of_a_result_do_not_reach_the_trace() -> None:
    tracer, sink = make_tracer()
    tracer.admit(request("a"))
    step, out = plan(1, {"a": 0}, {}, {"a": 3}), ModelRunnerOutput(["a"], [[7]])
    tracer.annotate(step)
    tracer.on_result(step, out)
    step.num_scheduled["a"] = 99
    out.sampled[0].append(99)
    scheduled, sampled = sink.events[1:]
    assert isinstance(scheduled, StepScheduled)
    assert scheduled.tokens == {"a": (0, 3)}
    assert isinstance(sampled, TokensSampled)
    assert sampled.ids == {"a": [7]}


class PrefixKV:
    """A manager with blocks of 4 tokens that shares block 0 with everyone."""

    num_blocks = 4
    block_size = 4

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.spare = [1, 2, 3]
        self.held: dict[str, list[int]] = {}

    @property
    def usage(self) -> float:
        return 0.25

    def lookup(self, req: Request) -> Hit | None:
        return None if req.req_id == "later" else Hit((0,), 4)

    def adopt(self, req: Request, hit: Hit) -> None:
        self.held[req.req_id] = list(hit.block_ids)

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        mine = self.held.setdefault(req.req_id, [])
        missing = -(-(upto + lookahead) // 4) - len(mine)
        if missing > len(self.spare):
            return None
        new = [self.spare.pop() for _ in range(missing)]
        mine += new
        return new

    def commit(self, req: Request) -> None:
        self.calls.append(f"commit {req.req_id}")

    def free(self, req: Request) -> None:
        self.spare += [block for block in self.held.pop(req.req_id, []) if block]


def test_traced_kv_answers_as_its_manager_and_tells_every_change() -> None:
    tracer, sink = make_tracer()
    inner = PrefixKV()
    kv = TracedKV(inner, tracer)
    a, b = request("a"), request("b")
    assert (kv.num_blocks, kv.block_size, kv.usage) == (4, 4, 0.25)
    assert kv.lookup(request("later")) is None
    hit = kv.lookup(a)
    assert hit == Hit((0,), 4)
    kv.adopt(a, hit)
    assert kv.allocate_slots(a, 7, lookahead=2) == [3, 2]
    assert kv.allocate_slots(a, 12) == []
    kv.adopt(b, Hit())  # an empty hit takes nothing
    assert kv.allocate_slots(b, 12) is None
    kv.free(b)  # admission failed: nothing was taken
    kv.commit(a)
    kv.free(a)
    kv.free(a)
    assert inner.calls == ["commit a"]
    assert sorted(inner.spare) == [1, 2, 3]
    assert [msgspec.structs.replace(event, t=0.0) for event in sink.events] == [
        BlocksShared(0.0, "a", [0], 4),
        BlocksTaken(0.0, "a", [3, 2]),
        BlocksFreed(0.0, "a", [0, 3, 2]),
    ]


def run_static(num_requests: int, seats: int, sinks: list[Any], abort: str | None = None) -> dict[str, list[int]]:
    """Serve requests with stage 1's scheduler and a made-up model; the tokens each request was given."""
    rng = random.Random(num_requests)
    tracer = Tracer(sinks, Clock())
    tracer.start(start_event(1, "tiny", 64, seats, seats))
    kv = TracedKV(OneBlockKVManager(seats, 64), tracer)
    scheduler = StaticScheduler(Lifecycle(kv, 64, (tracer,)), kv, seats, 64)
    for i in range(num_requests):
        prompt = list(range(rng.randint(1, 30)))
        scheduler.add(EngineCoreRequest(f"r{i}", prompt, SamplingParams(max_tokens=rng.randint(1, 9), ignore_eos=True)))
    given: dict[str, list[int]] = {f"r{i}": [] for i in range(num_requests)}
    while scheduler.has_work:
        step = scheduler.schedule()
        if abort is not None and abort in step.num_scheduled:
            scheduler.abort([abort])
        out = ModelRunnerOutput(list(step.num_scheduled), [[rng.randrange(1000)] for _ in step.num_scheduled])
        outputs = scheduler.update(step, out)
        for req_id, ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            given[req_id] += ids
    tracer.close()
    return given


@pytest.mark.parametrize(("num_requests", "seats", "abort"), [(1, 1, None), (9, 3, None), (9, 3, "r4")])
def test_the_static_scheduler_leaves_a_clean_trace(num_requests: int, seats: int, abort: str | None) -> None:
    sink = MemorySink()
    given = run_static(num_requests, seats, [sink], abort)
    trace = Trace(sink.events)
    assert check_trace(trace) == []
    assert {req_id: life.token_ids for req_id, life in trace.requests.items()} == given
    if abort is not None:
        assert trace.requests[abort].reason == "abort"
    assert max(step.num_running for step in trace.steps.values()) == seats


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path, memory = tmp_path / "run.jsonl", MemorySink()
    run_static(5, 2, [memory, *open_sinks(str(path), [])])
    trace = read_trace(path)
    assert trace.events == memory.events
    assert not trace.truncated
    assert open_sinks(None, [memory]) == (memory,)
