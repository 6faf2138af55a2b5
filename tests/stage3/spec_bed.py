"""Speculation without a model: stage 2's bed with a runner that drafts, and verifies by reading the KV.

The target is that of ``tests/stage2/scheduler_bed.py``: its next token depends on everything that can be read through
the block table. A draft is right with a chosen probability. Drafts are written to their slots like any tokens, each
position is verified from what can really be read, and what was rejected is spoilt afterwards: a scheduler that does not
have it computed anew gets a wrong token.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sixfold.exercises.importer import load_file
from stage1.interfaces import KVCacheManager
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import ModelRunnerOutput, SchedulerOutput
from stage1.trace.sinks import MemorySink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue, WaitingQueue
from stage3.spec.accept import AcceptanceCounter
from stage3.spec.lookahead import LookaheadKV
from stage3.spec.scheduling import DraftLimits, Speculation

bed = load_file(Path(__file__).parents[1] / "stage2" / "scheduler_bed.py")
MAX_LEN, EOS, expected_output, next_token = bed.MAX_LEN, bed.EOS, bed.expected_output, bed.next_token
SPOILT = -1_000


def alone(prompt: list[int], **params: Any) -> list[int]:
    """What plain decoding gives to a request with nobody beside it."""
    return expected_output(prompt, SamplingParams(**{"eos_token_ids": [EOS], **params}))


class DraftingRunner(bed.FakeRunner):
    """Verifies the plan's drafts, and proposes ``num_drafts`` tokens, each right with probability ``p``."""

    def __init__(self, block_size: int, num_drafts: int, p: float, seed: int, max_len: int) -> None:
        super().__init__(block_size)
        self.num_drafts, self.p, self.max_len = num_drafts, p, max_len
        self.random = random.Random(seed)
        self.num_computed = 0

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        computed = self.follow(plan)
        assert set(plan.drafts) <= set(plan.num_scheduled)
        ends = {req_id: computed[req_id] + n for req_id, n in plan.num_scheduled.items()}
        for req_id, end in ends.items():  # all write before anyone reads, as on a device
            tokens = self.tokens[req_id] + plan.drafts.get(req_id, [])
            assert computed[req_id] < end <= len(tokens)
            assert end < self.max_len, "a position that no token can follow"
            assert req_id not in plan.drafts or (
                end == len(tokens) and computed[req_id] == len(self.tokens[req_id]) - 1
            )
            for position in range(computed[req_id], end):
                self.slots[self.slot(req_id, position)] = tokens[position]
                self.num_computed += 1
        out = ModelRunnerOutput([], [])
        for req_id, end in ends.items():
            drafts = plan.drafts.get(req_id, [])
            sampled = self.verify(req_id, drafts) if end == len(self.tokens[req_id]) + len(drafts) else []
            self.tokens[req_id] += sampled
            out.req_ids.append(req_id)
            out.sampled.append(sampled)
            if sampled:
                for position in range(len(self.tokens[req_id]) - 1, end):
                    self.slots[self.slot(req_id, position)] = SPOILT
                out.drafts[req_id] = self.propose(self.tokens[req_id])
            if req_id in self.failing:
                out.failed[req_id] = "planted"
        return out

    def follow(self, plan: SchedulerOutput) -> dict[str, int]:
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
        return computed

    def verify(self, req_id: str, drafts: list[int]) -> list[int]:
        known, sampled = len(self.tokens[req_id]), []
        for i in range(len(drafts) + 1):
            sampled.append(next_token([self.slots[self.slot(req_id, position)] for position in range(known + i)]))
            if i == len(drafts) or sampled[i] != drafts[i]:
                break
        return sampled

    def propose(self, tokens: list[int]) -> list[int]:
        drafted = list(tokens)
        for _ in range(self.num_drafts):
            right = next_token(drafted)
            drafted.append(right if self.random.random() < self.p else self.random.randrange(23))
        return drafted[len(tokens) :]


class SpecBed(bed.Bed):
    """``Bed`` with speculation; ``hook`` is the part under test."""

    def __init__(
        self,
        num_blocks: int = 16,
        block_size: int = 4,
        seats: int = 4,
        budget: int = 24,
        long_prefill: int = 0,
        queue: Callable[[], WaitingQueue] = FcfsQueue,
        depth: int = 1,
        max_len: int = MAX_LEN,
        *,
        num_drafts: int = 3,
        p: float = 1.0,
        max_batch: int = 100,
        max_tokens: int | None = None,
        lookahead: int = 0,
        seed: int = 0,
        hook: Callable[[KVCacheManager, DraftLimits, AcceptanceCounter], Any] = Speculation,
    ) -> None:
        super().__init__(num_blocks, block_size, seats, budget, long_prefill, queue, depth, max_len)
        self.sink = MemorySink()
        tracer = Tracer([self.sink])
        tracer.start(start_event(3, "fake", block_size, num_blocks, seats))
        self.pool = BlockPool(num_blocks)
        self.plain_kv = bed.CommitCheckingKV(self.pool, block_size)
        self.kv = TracedKV(LookaheadKV(self.plain_kv, lookahead), tracer)
        self.counter = AcceptanceCounter(num_drafts)
        spare = budget - seats if max_tokens is None else max_tokens
        self.hook = hook(self.kv, DraftLimits(num_drafts, max_batch, max(spare, 1)), self.counter)
        self.lifecycle = Lifecycle(self.kv, max_len, (self.hook, tracer))
        self.scheduler = ContinuousScheduler(self.lifecycle, self.kv, BatchConfig(seats, budget, long_prefill), queue())
        self.runner = DraftingRunner(block_size, num_drafts, p, seed, max_len)

    def check_plan(self, plan: SchedulerOutput) -> None:
        super().check_plan(plan)
        for req_id, drafts in plan.drafts.items():
            req = self.lifecycle.requests[req_id]
            assert drafts
            assert req.num_tokens + len(drafts) < req.max_total_tokens
            assert req.num_computed_tokens == req.num_tokens + len(drafts)
            assert req.num_in_flight == 1
        assert not any(req.draft_ids for req in self.lifecycle.requests.values())

    def check_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        super().check_result(plan, out)
        for req_id in plan.drafts:
            req = self.lifecycle.requests.get(req_id)
            if req is not None and req.first_step <= plan.step and req.num_in_flight == 0 and req.num_computed_tokens:
                assert req.num_computed_tokens == req.num_tokens - 1

    def num_drafted(self) -> int:
        return sum(len(ids) for plan in self.plans for ids in plan.drafts.values())
