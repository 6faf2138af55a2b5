"""Continuous batching: every step is planned anew, from whoever can use it.

Owns who computes how many tokens, and who gives way when the blocks run out. Does not read results: that is
``Lifecycle``.

There are no phases. A request has a number of computed tokens and a number of known ones, and each step closes some of
the gap: a new prompt has a large one, a decoding request a gap of one, a resumed one again a large one. Running
requests come first, then waiting ones, until the step's token budget is spent; a gap that is larger than the budget
left is closed in pieces.

    budget 8         A decodes   B decodes   C's prompt of 20
    step 1           1           1           6
    step 2           1           1           6
    step 3           1           1           6
    step 4           1           1           2, and its first token

vLLM: ``v1/core/sched/scheduler.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stage1.interfaces import KVCacheManager
from stage1.lifecycle import Lifecycle
from stage1.records import (
    CachedRequests,
    EngineCoreOutputs,
    EngineCoreRequest,
    ModelRunnerOutput,
    NewRequestData,
    SchedulerOutput,
    StepStats,
)
from stage1.request import Request, Status
from stage2.chunking import chunk
from stage2.config import BatchConfig
from stage2.preemption import Preemption
from stage2.waiting import WaitingQueue


class ContinuousScheduler:
    """``Scheduler`` with chunked prefill and preemption by recompute."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        kv: KVCacheManager,
        limits: BatchConfig,
        waiting: WaitingQueue,
        chunk: Callable[[int, int, int], int] = chunk,
        preemption: Callable[[KVCacheManager, WaitingQueue], Preemption] = Preemption,
    ) -> None:
        self._lifecycle = lifecycle
        self._kv = kv
        self._limits = limits
        self._waiting = waiting
        self._chunk = chunk
        self._preemption = preemption(kv, waiting)
        self._running: list[Request] = []
        self._step = 0
        self._scheduled_tokens = 0

    @property
    def has_work(self) -> bool:
        """Whether a live request is left."""
        return bool(self._lifecycle.requests)

    def add(self, request: EngineCoreRequest) -> None:
        """Queue a request."""
        req = self._lifecycle.admit(request)
        if req is not None:
            self._waiting.add(req)

    def abort(self, req_ids: Sequence[str]) -> None:
        """End requests now; unknown ids are ignored."""
        self._lifecycle.abort(req_ids)
        self._forget_ended()

    def schedule(self) -> SchedulerOutput:
        """The next step."""
        for req in self._lifecycle.released():
            self._waiting.add(req)
        self._step += 1
        plan = SchedulerOutput(step=self._step, new=[], cached=CachedRequests(), num_scheduled={})
        budget = self._schedule_running(plan, self._limits.max_num_batched_tokens)
        if not plan.preempted:  # else whoever comes in would push out others at once
            budget = self._schedule_waiting(plan, budget)
        self._scheduled_tokens = self._limits.max_num_batched_tokens - budget
        return self._lifecycle.plan_made(plan)

    def update(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> EngineCoreOutputs:
        """Read a step's result."""
        outputs = self._lifecycle.update(plan, out)
        self._forget_ended()
        return outputs

    def fail(self, plan: SchedulerOutput, reason: str) -> EngineCoreOutputs:
        """The step raised: end its requests with an error, keep all others."""
        outputs = self._lifecycle.fail(plan, reason)
        self._forget_ended()
        return outputs

    def stats(self) -> StepStats:
        """Queues and usage after the last step."""
        return StepStats(
            step=self._step,
            num_running=len(self._running),
            num_waiting=len(self._lifecycle.requests) - len(self._running),
            scheduled_tokens=self._scheduled_tokens,
            kv_usage=self._kv.usage,
            preemptions=self._preemption.num_preemptions,
        )

    # --- below: the two halves of a step -------------------------------------------------------------

    def _schedule_running(self, plan: SchedulerOutput, budget: int) -> int:
        """Give each running request its tokens, in order of admission; returns the budget left."""
        index = 0
        while index < len(self._running) and budget > 0:
            req = self._running[index]
            num_tokens = self._share(req, budget)
            if num_tokens <= 0:
                index += 1
                continue
            block_ids = self._kv.allocate_slots(req, req.num_computed_tokens + num_tokens)
            if block_ids is None:
                budget += self._give_way(req, plan)
                # ``req`` tries again, wherever it stands now; if it gave way itself, the next one stands in its place.
                index = next((i for i, other in enumerate(self._running) if other is req), index)
                continue
            plan.cached.req_ids.append(req.req_id)
            plan.cached.num_computed.append(req.num_computed_tokens)
            if block_ids:
                plan.cached.new_block_ids[req.req_id] = block_ids
            self._count(plan, req, num_tokens)
            budget -= num_tokens
            index += 1
        return budget

    def _schedule_waiting(self, plan: SchedulerOutput, budget: int) -> int:
        """Admit while there are seats, budget and blocks for everything that is known of the request."""
        while budget > 0 and len(self._running) < self._limits.max_num_seqs:
            req = self._waiting.peek()
            if req is None:
                break
            if req.num_tokens > self._kv.num_blocks * self._kv.block_size:
                self._refuse(req)
                continue
            hit = self._kv.lookup(req)
            if hit is None:
                break
            self._kv.adopt(req, hit)
            # Room for the whole known length, not for the first chunk alone: a long request that got only a part
            # would be pushed out again before it came to its second.
            block_ids = self._kv.allocate_slots(req, req.num_tokens)
            if block_ids is None:
                self._kv.free(req)
                break
            self._waiting.pop()
            self._running.append(req)
            req.status = Status.RUNNING
            req.num_computed_tokens = hit.num_tokens
            plan.new.append(
                NewRequestData(
                    req.req_id,
                    req.prompt_ids,
                    list(req.output_ids),
                    req.params,
                    [*hit.block_ids, *block_ids],
                    hit.num_tokens,
                )
            )
            num_tokens = self._share(req, budget)
            self._count(plan, req, num_tokens)
            budget -= num_tokens
        return budget

    def _share(self, req: Request, budget: int) -> int:
        """How much of its gap ``req`` closes in this step."""
        return self._chunk(req.num_tokens_to_compute, budget, self._limits.long_prefill_token_threshold)

    def _count(self, plan: SchedulerOutput, req: Request, num_tokens: int) -> None:
        """What is scheduled counts as computed at once; a closed gap samples a token."""
        plan.num_scheduled[req.req_id] = num_tokens
        req.num_computed_tokens += num_tokens
        if req.num_computed_tokens == req.num_tokens + req.num_in_flight:
            req.num_in_flight += 1

    # --- below: when the blocks run out ---------------------------------------------------------------

    def _give_way(self, req: Request, plan: SchedulerOutput) -> int:
        """Preempt someone so that ``req`` may go on; returns the budget that this gives back."""
        if len(self._running) > 1:
            return self._preemption.make_room(self._running, plan)
        self._refuse(req)
        return 0

    def _refuse(self, req: Request) -> None:
        """The whole cache is too small for ``req``: end it, or the queue would stand for ever."""
        room = self._kv.num_blocks * self._kv.block_size
        self._lifecycle.doom(
            req,
            f"the request has {req.num_tokens:,} tokens and the whole KV cache holds {room:,}: shorten it, or give the "
            "cache more memory (--num-gpu-blocks-override, --kv-cache-memory-bytes)",
        )
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._running = [req for req in self._running if not req.status.is_finished]
