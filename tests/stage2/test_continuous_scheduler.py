"""Continuous batching on a test bed without a model: the next token depends on the KV that can really be read.

The fake runner keeps one number a slot. It writes a token into its slot when it is computed, and reads the whole
sequence back through the block table to choose the next token: a wrong block, a lost one, or one that two requests
write to gives a wrong token.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreOutputs, EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue, PriorityQueue

MAX_LEN = 48
EOS = 7


def next_token(tokens: list[int]) -> int:
    return (sum((i + 1) * t for i, t in enumerate(tokens)) * 31 + len(tokens)) % 23


def expected_output(prompt: list[int], params: SamplingParams) -> list[int]:
    """The oracle: one request alone, with no cache at all."""
    tokens = list(prompt)
    while True:
        tokens.append(next_token(tokens))
        output = tokens[len(prompt) :]
        if (tokens[-1] == EOS and not params.ignore_eos) or len(output) == params.max_tokens or len(tokens) == MAX_LEN:
            return output


@dataclass
class FakeRunner:
    block_size: int
    slots: dict[int, int] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    table: dict[str, list[int]] = field(default_factory=dict)

    def slot(self, req_id: str, position: int) -> int:
        return self.table[req_id][position // self.block_size] * self.block_size + position % self.block_size

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        for req_id in (*plan.finished, *plan.preempted):
            self.tokens.pop(req_id, None)
            self.table.pop(req_id, None)
        computed = dict(zip(plan.cached.req_ids, plan.cached.num_computed, strict=True))
        for new in plan.new:
            self.tokens[new.req_id] = [*new.prompt_ids, *new.output_ids]
            self.table[new.req_id] = list(new.block_ids)
            computed[new.req_id] = new.num_computed
        for req_id, block_ids in plan.cached.new_block_ids.items():
            self.table[req_id] += block_ids
        assert set(computed) == set(plan.num_scheduled)
        for req_id, n in plan.num_scheduled.items():  # all write before anyone reads, as on a device
            assert n > 0
            for position in range(computed[req_id], computed[req_id] + n):
                self.slots[self.slot(req_id, position)] = self.tokens[req_id][position]
        out = ModelRunnerOutput([], [])
        for req_id, n in plan.num_scheduled.items():
            end = computed[req_id] + n
            readable = [self.slots[self.slot(req_id, position)] for position in range(end)]
            sampled = [next_token(readable)] if end == len(self.tokens[req_id]) else []
            self.tokens[req_id] += sampled
            out.req_ids.append(req_id)
            out.sampled.append(sampled)
        return out


class Bed:
    def __init__(self, num_blocks=16, block_size=4, seats=4, budget=16, long_prefill=0, queue=FcfsQueue) -> None:
        self.sink = MemorySink()
        tracer = Tracer([self.sink])
        tracer.start(start_event(2, "fake", block_size, num_blocks, seats))
        self.kv = TracedKV(PagedKVManager(BlockPool(num_blocks), block_size), tracer)
        self.lifecycle = Lifecycle(self.kv, MAX_LEN, (tracer,))
        limits = BatchConfig(seats, budget, long_prefill)
        self.scheduler = ContinuousScheduler(self.lifecycle, self.kv, limits, queue())
        self.runner = FakeRunner(block_size)
        self.budget, self.seats = budget, seats
        self.received: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}
        self.plans: list[SchedulerOutput] = []

    def add(self, req_id: str, prompt: list[int], priority: int = 0, arrival: float = 0.0, **params) -> None:
        params = SamplingParams(seed=0, eos_token_ids=[EOS], **params)
        self.scheduler.add(EngineCoreRequest(req_id, prompt, params, priority, arrival))
        self.received[req_id] = []

    def step(self) -> SchedulerOutput:
        plan = self.scheduler.schedule()
        assert plan.total_tokens <= self.budget
        assert len(plan.num_scheduled) <= self.seats
        self.plans.append(plan)
        self.deliver(self.scheduler.update(plan, self.runner.execute(plan)))
        return plan

    def deliver(self, outputs: EngineCoreOutputs) -> None:
        for req_id, ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            assert req_id not in self.reasons
            self.received[req_id] += ids
        self.reasons.update(outputs.finish_reason)

    def run(self, limit: int = 3000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work:
                break
            self.step()
        assert not self.scheduler.has_work, "no progress"

    def assert_clean(self) -> None:
        assert self.kv.usage == 0.0
        assert not self.lifecycle.requests
        assert check_trace(Trace(self.sink.events)) == []


arrivals = st.lists(
    st.tuples(
        st.lists(st.integers(0, 22), min_size=1, max_size=MAX_LEN - 1),
        st.integers(1, 30) | st.none(),  # max_tokens
        st.integers(0, 12),  # added after this many steps
        st.integers(0, 40) | st.none(),  # aborted after this many
        st.integers(-1, 1),  # priority
        st.booleans(),  # ignore_eos
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=400, deadline=None)
@given(
    arrivals,
    st.integers(1, 5),  # block size
    st.integers(0, 40),  # blocks beyond what one request of MAX_LEN needs
    st.integers(1, 6),  # seats
    st.integers(1, 40),  # budget
    st.integers(0, 12),  # long prefill threshold
    st.sampled_from([FcfsQueue, PriorityQueue]),
)
def test_any_pool_budget_and_arrivals_give_every_request_its_own_tokens(
    arriving, block_size, spare, seats, budget, long_prefill, queue
):
    bed = Bed(-(-MAX_LEN // block_size) + spare, block_size, seats, max(budget, seats), long_prefill, queue)
    aborted = set()
    for now in range(42):
        for i, (prompt, max_tokens, start, stop, priority, ignore) in enumerate(arriving):
            if start == now:
                bed.add(str(i), prompt, priority, float(i), max_tokens=max_tokens, ignore_eos=ignore)
            if stop == now and str(i) in bed.received and str(i) not in bed.reasons:
                bed.scheduler.abort([str(i)])
                aborted.add(str(i))
        if bed.scheduler.has_work:
            bed.step()
    bed.run()
    for i, (prompt, max_tokens, _, _, _, ignore) in enumerate(arriving):
        output = expected_output(prompt, SamplingParams(max_tokens=max_tokens, ignore_eos=ignore))
        got = bed.received[str(i)]
        assert got == (output[: len(got)] if str(i) in aborted else output)
    bed.assert_clean()


def test_a_long_prompt_is_computed_in_pieces_beside_decodes():
    bed = Bed(num_blocks=32, budget=8)
    for name in "ab":
        bed.add(name, [1, 2], max_tokens=12, ignore_eos=True)
    bed.step()
    bed.add("c", list(range(20)), max_tokens=2, ignore_eos=True)
    assert [dict(bed.step().num_scheduled) for _ in range(4)] == [{"a": 1, "b": 1, "c": n} for n in (6, 6, 6, 2)]
    bed.run()
    bed.assert_clean()


def test_the_long_prefill_threshold_caps_a_piece():
    bed = Bed(num_blocks=32, budget=16, long_prefill=5)
    bed.add("c", list(range(12)), max_tokens=1)
    bed.run()
    assert [plan.num_scheduled["c"] for plan in bed.plans] == [5, 5, 2]


def test_a_seat_is_filled_in_the_step_after_it_became_free():
    bed = Bed(seats=2, num_blocks=32)
    for name, length in (("a", 6), ("b", 2), ("c", 3)):
        bed.add(name, [1, 2], max_tokens=length, ignore_eos=True)
    bed.run()
    assert [set(plan.num_scheduled) for plan in bed.plans] == [set("ab")] * 2 + [set("ac")] * 3 + [set("a")]


def test_a_preempted_request_is_the_first_to_return_and_loses_nothing():
    """First come first served: the last admitted gives way, and goes to the front of the queue."""
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32)
    bed.add("a", [1] * 10, max_tokens=14, ignore_eos=True)
    bed.add("b", [2] * 8, max_tokens=12, ignore_eos=True)
    bed.add("c", [3] * 3, max_tokens=2, ignore_eos=True)
    bed.run()
    preempted = [req_id for plan in bed.plans for req_id in plan.preempted]
    assert preempted[0] == "b"
    admitted = [new.req_id for plan in bed.plans for new in plan.new]
    assert admitted.index("c") > len(admitted) - 1 - admitted[::-1].index("b")
    assert bed.received["b"] == expected_output([2] * 8, SamplingParams(max_tokens=12, ignore_eos=True))
    bed.assert_clean()


def test_priority_orders_waiting_and_preempted_alike():
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32, queue=PriorityQueue)
    bed.add("late", [1] * 8, 5, 1.0, max_tokens=10, ignore_eos=True)
    bed.add("soon", [2] * 8, 0, 2.0, max_tokens=14, ignore_eos=True)
    bed.run()
    assert {req_id for plan in bed.plans for req_id in plan.preempted} == {"late"}
    assert [new.req_id for new in bed.plans[0].new] == ["soon", "late"]
    bed.assert_clean()


def test_a_lone_request_that_outgrows_the_pool_ends_with_an_error():
    bed = Bed(num_blocks=3, block_size=16, seats=2, budget=64)
    bed.lifecycle._max_model_len = 100
    bed.add("big", [1] * 40, max_tokens=32, ignore_eos=True)
    bed.run(limit=100)
    assert bed.reasons["big"] == "error"
    assert len(bed.received["big"]) <= 9
    bed.add("next", [1, 2], max_tokens=2, ignore_eos=True)
    bed.run(limit=100)
    assert bed.reasons["next"] == "length"
    bed.assert_clean()


def test_what_can_never_fit_does_not_block_the_queue():
    bed = Bed(num_blocks=2, block_size=4, seats=2, budget=64)
    bed.add("huge", [1] * 20, max_tokens=2)
    bed.add("small", [1, 2], max_tokens=2, ignore_eos=True)
    bed.run(limit=100)
    assert bed.reasons == {"huge": "error", "small": "length"}
    bed.assert_clean()


def test_a_resumed_request_is_not_pushed_out_again_and_again():
    bed = Bed(num_blocks=8, block_size=4, seats=4, budget=16)
    bed.add("a", [1] * 18, max_tokens=20, ignore_eos=True)
    bed.add("b", [2] * 4, max_tokens=24, ignore_eos=True)
    preemptions = 0
    for _ in range(60):
        if bed.scheduler.has_work:
            preemptions += bed.step().preempted.count("b")
    assert preemptions <= 1
    bed.run()
    bed.assert_clean()


def test_abort_while_waiting_running_and_preempted_frees_everything():
    bed = Bed(num_blocks=6, block_size=4, seats=2, budget=32)
    for name in "abc":
        bed.add(name, [1] * 10, max_tokens=14, ignore_eos=True)
    for _ in range(6):
        bed.step()
    bed.scheduler.abort(["a", "b", "c", "unknown"])
    assert bed.kv.usage == 0.0
    assert not bed.scheduler.has_work
    bed.assert_clean()


@pytest.mark.parametrize("queue", [FcfsQueue, PriorityQueue])
def test_a_step_does_not_walk_the_waiting_queue(queue):
    """However many wait, a step looks at no more of them than it admits."""
    bed = Bed(num_blocks=64, seats=2, queue=queue)
    for i in range(500):
        bed.add(str(i), [1, 2], max_tokens=3, ignore_eos=True)
    looks = []
    peek = bed.scheduler._waiting.peek
    bed.scheduler._waiting.peek = lambda: looks.append(1) or peek()
    bed.step()
    assert len(looks) <= 3
