"""Static batching, driven without a model: a fake runner whose next token depends on all tokens before it.

The fake follows plans as the real one does and checks them: a row it does not know, a gap or an overlap in what is
computed, or a block shared by two requests fails the test at once.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.kv_manager import OneBlockKVManager
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreOutputs, EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage1.scheduler import StaticScheduler
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event

MAX_LEN = 40
EOS = 7


def next_token(tokens: list[int]) -> int:
    return (sum((i + 1) * t for i, t in enumerate(tokens)) * 31 + len(tokens)) % 23


def expected_output(prompt: list[int], params: SamplingParams) -> tuple[list[int], str]:
    """The oracle: one request alone, one token at a time."""
    tokens, output = list(prompt), []
    while True:
        token = next_token(tokens)
        tokens.append(token)
        output.append(token)
        if token == EOS and not params.ignore_eos and len(output) >= params.min_tokens:
            return output, "stop"
        if len(output) == params.max_tokens or len(tokens) == MAX_LEN:
            return output, "length"


@dataclass
class FakeRunner:
    tokens: dict[str, list[int]] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    blocks: dict[str, list[int]] = field(default_factory=dict)
    fail: set[str] = field(default_factory=set)

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        for req_id in plan.finished:
            self.tokens.pop(req_id, None)
            self.blocks.pop(req_id, None)
        for new in plan.new:
            assert new.num_computed == 0
            self.tokens[new.req_id] = [*new.prompt_ids, *new.output_ids]
            self.computed[new.req_id] = 0
            self.blocks[new.req_id] = list(new.block_ids)
        for req_id, computed in zip(plan.cached.req_ids, plan.cached.num_computed, strict=True):
            assert computed == self.computed[req_id], "computed twice or never"
        held = [block for req_id in plan.num_scheduled for block in self.blocks[req_id]]
        assert len(held) == len(set(held)) == len(plan.num_scheduled), "a block with two owners"
        out = ModelRunnerOutput([], [])
        for req_id, n in plan.num_scheduled.items():
            self.computed[req_id] += n
            tokens = self.tokens[req_id]
            assert self.computed[req_id] <= len(tokens), "a token that is not known yet was scheduled"
            sampled = [next_token(tokens)] if self.computed[req_id] == len(tokens) else []
            tokens += sampled
            out.req_ids.append(req_id)
            out.sampled.append(sampled)
            if req_id in self.fail:
                out.failed[req_id] = "planted"
        return out


class Bed:
    """A scheduler with its fake runner, its trace and what every request received."""

    def __init__(self, seats: int, budget: int = MAX_LEN) -> None:
        self.sink = MemorySink()
        tracer = Tracer([self.sink])
        tracer.start(start_event(1, "fake", MAX_LEN, seats, seats))
        self.kv = TracedKV(OneBlockKVManager(seats, MAX_LEN), tracer)
        self.lifecycle = Lifecycle(self.kv, MAX_LEN, (tracer,))
        self.scheduler = StaticScheduler(self.lifecycle, self.kv, seats, budget)
        self.runner = FakeRunner()
        self.received: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}
        self.batches: list[set[str]] = []

    def add(self, req_id: str, prompt: list[int], params: SamplingParams) -> None:
        self.scheduler.add(EngineCoreRequest(req_id, prompt, params))
        self.received[req_id] = []

    def step(self) -> None:
        plan = self.scheduler.schedule()
        self.batches.append(set(plan.num_scheduled))
        self.deliver(self.scheduler.update(plan, self.runner.execute(plan)))

    def deliver(self, outputs: EngineCoreOutputs) -> None:
        for req_id, ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            assert req_id not in self.reasons, "a token after the end"
            self.received[req_id] += ids
        self.reasons.update(outputs.finish_reason)

    def run(self, limit: int = 2000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work:
                break
            self.step()
        assert not self.scheduler.has_work, "no progress"

    def assert_clean(self) -> None:
        assert self.kv.usage == 0.0
        assert not self.lifecycle.requests
        assert check_trace(Trace(self.sink.events)) == []


requests = st.lists(
    st.tuples(
        st.lists(st.integers(0, 22), min_size=1, max_size=MAX_LEN - 1),
        st.integers(1, 30) | st.none(),  # max_tokens
        st.integers(0, 20),  # added after this many steps
        st.integers(0, 40) | st.none(),  # aborted after this many steps
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(requests, st.integers(1, 5), st.integers(MAX_LEN, 3 * MAX_LEN))
def test_any_arrivals_and_aborts_give_every_request_its_own_tokens(arrivals, seats, budget):
    bed = Bed(seats, budget)
    params = [SamplingParams(max_tokens=m, ignore_eos=i, eos_token_ids=[EOS], seed=0) for _, m, _, _, i in arrivals]
    aborted = set()
    for now in range(42):
        for i, (prompt, _, start, stop, _) in enumerate(arrivals):
            if start == now:
                bed.add(str(i), prompt, params[i])
            if stop == now and str(i) in bed.received and str(i) not in bed.reasons:
                bed.scheduler.abort([str(i)])
                aborted.add(str(i))
        if bed.scheduler.has_work:
            bed.step()
    bed.run()
    for i, (prompt, *_) in enumerate(arrivals):
        output, reason = expected_output(prompt, params[i])
        if str(i) in aborted:
            assert output[: len(bed.received[str(i)])] == bed.received[str(i)]
            assert str(i) not in bed.reasons
        else:
            assert (bed.received[str(i)], bed.reasons[str(i)]) == (output, reason)
    bed.assert_clean()


def test_a_batch_runs_to_its_last_token_before_the_next_begins():
    bed = Bed(seats=2)
    for name, length in (("a", 6), ("b", 2), ("c", 3)):
        bed.add(name, [1, 2], SamplingParams(max_tokens=length, ignore_eos=True))
    bed.run()
    assert bed.batches == [{"a", "b"}] * 2 + [{"a"}] * 4 + [{"c"}] * 3
    bed.assert_clean()


def test_a_prompt_that_exceeds_the_budget_left_waits_a_step():
    bed = Bed(seats=3, budget=MAX_LEN)
    for name in "abc":
        bed.add(name, [1] * 20, SamplingParams(max_tokens=2, ignore_eos=True))
    bed.run()
    assert bed.batches[:2] == [{"a", "b"}, {"a", "b", "c"}]
    bed.assert_clean()


def test_length_limits_are_exact():
    """A prompt of max_model_len - 1 leaves room for exactly one token."""
    bed = Bed(seats=1)
    bed.add("full", [1] * (MAX_LEN - 1), SamplingParams(max_tokens=None, ignore_eos=True))
    bed.add("two", [1] * (MAX_LEN - 2), SamplingParams(max_tokens=5, ignore_eos=True))
    bed.run()
    assert [len(bed.received[k]) for k in ("full", "two")] == [1, 2]
    assert bed.reasons == {"full": "length", "two": "length"}


@pytest.mark.parametrize("size", [0, MAX_LEN, MAX_LEN + 1])
def test_a_prompt_without_room_is_refused_and_nothing_stays(size: int):
    bed = Bed(seats=1)
    with pytest.raises(ValueError, match="max_model_len"):
        bed.scheduler.add(EngineCoreRequest("x", [1] * size, SamplingParams()))
    assert not bed.scheduler.has_work


def test_a_live_id_is_refused_and_the_first_request_goes_on():
    bed = Bed(seats=1)
    bed.add("a", [1, 2], SamplingParams(max_tokens=4, ignore_eos=True))
    with pytest.raises(ValueError, match="in use"):
        bed.scheduler.add(EngineCoreRequest("a", [3], SamplingParams()))
    bed.run()
    assert len(bed.received["a"]) == 4


def test_abort_between_plan_and_result_drops_only_that_result():
    bed = Bed(seats=2)
    for name in "ab":
        bed.add(name, [1, 2], SamplingParams(max_tokens=4, ignore_eos=True))
    plan = bed.scheduler.schedule()
    out = bed.runner.execute(plan)
    bed.scheduler.abort(["a"])
    outputs = bed.scheduler.update(plan, out)
    assert outputs.req_ids == ["b"]
    bed.deliver(outputs)
    bed.run()
    bed.scheduler.abort(["a", "unknown"])
    assert bed.received["a"] == []
    bed.assert_clean()


def test_a_failed_request_ends_alone():
    bed = Bed(seats=2)
    for name in "ab":
        bed.add(name, [1, 2], SamplingParams(max_tokens=4, ignore_eos=True))
    bed.runner.fail = {"a"}
    bed.run()
    assert bed.reasons == {"a": "error", "b": "length"}
    bed.assert_clean()


def test_a_failed_step_ends_its_requests_and_keeps_the_queue():
    bed = Bed(seats=1)
    for name in "ab":
        bed.add(name, [1, 2], SamplingParams(max_tokens=4, ignore_eos=True))
    bed.deliver(bed.scheduler.fail(bed.scheduler.schedule(), "out of memory"))
    bed.run()
    assert bed.reasons == {"a": "error", "b": "length"}
    bed.assert_clean()


def test_stops_come_in_the_documented_order():
    """EOS before stop_token_ids, both only from min_tokens on; what ended the request is named."""
    token = next_token([1, 2])
    for params, reason, named in [
        (SamplingParams(eos_token_ids=[token], stop_token_ids=[token]), "stop", None),
        (SamplingParams(eos_token_ids=[token], ignore_eos=True, stop_token_ids=[token]), "stop", token),
        (SamplingParams(stop_token_ids=[token], min_tokens=2, max_tokens=2), "length", None),
    ]:
        bed = Bed(seats=1)
        bed.add("a", [1, 2], params)
        stop_reasons = {}
        while bed.scheduler.has_work:
            plan = bed.scheduler.schedule()
            outputs = bed.scheduler.update(plan, bed.runner.execute(plan))
            bed.deliver(outputs)
            stop_reasons.update(outputs.stop_reason)
        assert bed.reasons["a"] == reason
        assert stop_reasons.get("a") == named
