"""Continuous batching without a model: the next token depends on the KV that can really be read.

The fake runner keeps one number a slot. It writes a token into its slot when it is computed, and reads the whole
sequence back through the block table to choose the next token: a wrong block, a lost one, or one that two requests
write to gives a wrong token. It hands a sampled token to the next plan itself, as a device does, so that the scheduler
can be driven with several plans in flight. After every plan and every result the bed checks what must always hold.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stage1.interfaces import KVCacheManager, SchedulerHook
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreOutputs, EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage1.request import Request, Status
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue, WaitingQueue

MAX_LEN = 48
EOS = 7


def next_token(tokens: Sequence[int]) -> int:
    return (sum((i + 1) * t for i, t in enumerate(tokens)) * 31 + len(tokens)) % 23


def expected_output(prompt: list[int], params: SamplingParams) -> list[int]:
    """The oracle: one request alone, with no cache at all."""
    tokens = list(prompt)
    while True:
        tokens.append(next_token(tokens))
        output = tokens[len(prompt) :]
        ends = tokens[-1] in params.stop_token_ids or (tokens[-1] == EOS and not params.ignore_eos)
        if ends and len(output) >= params.min_tokens:
            return output
        if len(output) == params.max_tokens or len(tokens) == MAX_LEN:
            return output


@dataclass
class FakeRunner:
    block_size: int
    slots: dict[int, int] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    table: dict[str, list[int]] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)  # their results are failures

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
            if req_id in self.failing:
                out.failed[req_id] = "planted"
        return out


class CommitCheckingKV(PagedKVManager):
    """Remembers how many tokens of each request were said to be in the cache."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        super().__init__(pool, block_size)
        self.committed: dict[str, int] = {}

    def commit(self, req: Request) -> None:
        self.committed[req.req_id] = req.num_computed_tokens

    def free(self, req: Request) -> None:
        super().free(req)
        self.committed.pop(req.req_id, None)


class Bed:
    """A scheduler with its fake runner, up to ``depth`` plans in flight, and what every request received."""

    def __init__(
        self,
        num_blocks: int = 16,
        block_size: int = 4,
        seats: int = 4,
        budget: int = 16,
        long_prefill: int = 0,
        queue: Callable[[], WaitingQueue] = FcfsQueue,
        depth: int = 1,
        max_len: int = MAX_LEN,
        hooks: Sequence[SchedulerHook] = (),
        kv_type: Callable[[BlockPool, int], PagedKVManager] | None = None,
        clock: Callable[[], float] = time.time,
        **parts: Any,
    ) -> None:
        self.sink = MemorySink()
        tracer = Tracer([self.sink])
        tracer.start(start_event(2, "fake", block_size, num_blocks, seats))
        self.pool = BlockPool(num_blocks)
        self.plain_kv = (kv_type or CommitCheckingKV)(self.pool, block_size)
        self.kv: KVCacheManager = TracedKV(self.plain_kv, tracer)
        self.lifecycle = Lifecycle(self.kv, max_len, (tracer, *hooks), clock)
        self.scheduler = ContinuousScheduler(
            self.lifecycle, self.kv, BatchConfig(seats, budget, long_prefill), queue(), **parts
        )
        self.runner = FakeRunner(block_size)
        self.budget, self.seats, self.depth, self.long_prefill = budget, seats, depth, long_prefill
        self.is_fcfs = queue is FcfsQueue
        self.in_flight: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        self.received: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.plans: list[SchedulerOutput] = []
        self.admissions: list[str] = []  # in order, also after preemptions

    def add(self, req_id: str, prompt: list[int], priority: int = 0, arrival: float = 0.0, **params: Any) -> None:
        asked = SamplingParams(**{"seed": 0, "eos_token_ids": [EOS], **params})
        self.scheduler.add(EngineCoreRequest(req_id, prompt, asked, priority, arrival))
        self.received[req_id] = []
        self.reasons.pop(req_id, None)

    def schedule(self) -> SchedulerOutput:
        """Plan a step and start it."""
        plan = self.scheduler.schedule()
        self.check_plan(plan)
        self.plans.append(plan)
        self.admissions += [new.req_id for new in plan.new]
        self.in_flight.append((plan, self.runner.execute(plan)))
        return plan

    def update(self) -> None:
        """Read the oldest result."""
        plan, out = self.in_flight.popleft()
        self.deliver(self.scheduler.update(plan, out))
        self.check_result(plan, out)

    def step(self) -> SchedulerOutput:
        """Plan until ``depth`` steps are in flight, then read the oldest result; returns the newest plan."""
        while len(self.in_flight) < self.depth and self.scheduler.has_work:
            self.schedule()
        if self.in_flight:
            self.update()
        return self.plans[-1]

    def deliver(self, outputs: EngineCoreOutputs) -> None:
        for req_id, ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            assert req_id not in self.reasons, "a token after the end"
            self.received[req_id] += ids
        self.reasons.update(outputs.finish_reason)
        self.errors.update(outputs.error)

    def run(self, limit: int = 3000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_work and not self.in_flight:
                break
            self.step()
        assert not self.scheduler.has_work, "no progress"

    # --- what must always hold -----------------------------------------------------------------------

    def check_plan(self, plan: SchedulerOutput) -> None:
        live = self.lifecycle.requests
        assert self.scheduler.stats().scheduled_tokens == plan.total_tokens <= self.budget
        assert len(plan.num_scheduled) <= self.seats
        running = [req for req in live.values() if req.status is Status.RUNNING]
        assert len(running) <= self.seats
        assert self.depth > 1 or not any(self.is_leaving(req) for req in live.values())
        is_crowded = (plan.preempted and plan.num_scheduled) or any(self.is_leaving(req) for req in live.values())
        waiting = [req for req in live.values() if req.status in (Status.WAITING, Status.PREEMPTED)]
        waiting = [req for req in waiting if not self.is_leaving(req)]
        if self.is_fcfs:
            places = {req_id: place for place, req_id in enumerate(self.admissions)}
            stayed = {req.req_id for req in running} - {new.req_id for new in plan.new}
            for victim in plan.preempted:
                assert all(places[req_id] < places[victim] for req_id in stayed), "the last admitted goes first"
        else:
            for new in plan.new:
                assert all(urgency(live[new.req_id]) < urgency(req) for req in waiting), "not the most urgent came in"
        room = self.budget - plan.total_tokens
        if not is_crowded and room and len(running) < self.seats:
            sizes = [-(-req.num_tokens // self.kv.block_size) for req in waiting]
            assert not sizes or max(sizes) > self.pool.num_free, "a seat is left empty"
        if room and not is_crowded and self.pool.num_free and not self.long_prefill:
            assert not [req for req in running if left_over(req, plan)], "tokens are left over"

    def is_leaving(self, req: Request) -> bool:
        return req.status is Status.PREEMPTED and req.num_computed_tokens > 0

    def check_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        """Every block that is full of computed and known tokens has been committed."""
        for req_id in out.req_ids:
            req = self.lifecycle.requests.get(req_id)
            if req is None or req.first_step > plan.step or req.num_computed_tokens == 0:
                continue
            assert 0 <= req.num_in_flight <= len(self.in_flight)
            known = min(req.num_computed_tokens, req.num_tokens - 1) if self.depth > 1 else req.num_computed_tokens
            size = self.kv.block_size
            if out.sampled[out.req_ids.index(req_id)] or self.depth == 1:
                assert self.plain_kv.committed.get(req_id, 0) // size >= known // size

    def assert_clean(self) -> None:
        assert not self.lifecycle.requests
        assert self.kv.usage == 0.0
        assert sorted(self.pool.free_blocks()) == list(range(self.pool.num_blocks))
        assert check_trace(Trace(self.sink.events)) == []


def left_over(req: Request, plan: SchedulerOutput) -> bool:
    """Whether ``req`` could have computed more in ``plan``: the token that ``plan`` samples comes later."""
    sampled = int(req.req_id in plan.num_scheduled and req.num_in_flight > 0)
    known = req.num_tokens + req.num_in_flight - sampled
    return min(known, req.max_total_tokens - 1) > req.num_computed_tokens


def urgency(req: Request) -> tuple[int, float, str]:
    return (req.priority, req.arrival_time, req.req_id)
