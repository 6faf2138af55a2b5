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
        self._room = kv.num_blocks * kv.block_size  # tokens
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
        if len(self._waiting) > 2 * len(self._lifecycle.requests):
            self._waiting.drop_ended()

    def schedule(self) -> SchedulerOutput:
        """The next step; results of earlier ones may still be on their way."""
        for req in self._lifecycle.released():
            self._waiting.add(req)
        self._step += 1
        plan = SchedulerOutput(step=self._step, new=[], cached=CachedRequests(), num_scheduled={})
        self._preemption.complete(self._running, plan)
        budget = self._schedule_running(plan, self._limits.max_num_batched_tokens)
        # After a preemption whoever comes in would push out others at once, unless nobody else is left.
        if self._preemption.leaving is None and not (plan.preempted and plan.num_scheduled):
            budget = self._schedule_waiting(plan, budget)
        self._scheduled_tokens = self._limits.max_num_batched_tokens - budget
        return self._lifecycle.plan_made(plan)

    def update(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> EngineCoreOutputs:
        """Read a step's result."""
        outputs = self._lifecycle.update(plan, out)
        if outputs.finish_reason:
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
        req_ids, starts, num_scheduled = plan.cached.req_ids, plan.cached.num_computed, plan.num_scheduled
        block_size, alive = self._kv.block_size, Status.RUNNING
        for req in tuple(self._running):
            if budget == 0:
                break
            start, limit = req.num_computed_tokens, req.max_total_tokens
            known = req.num_prompt_tokens + len(req.output_ids) + req.num_in_flight + len(req.draft_ids)
            gap = (known if known < limit else limit - 1) - start  # ``num_tokens_to_compute`` without a call
            if gap <= 0 or req.status is not alive:  # all is on its way, or it has given way
                continue
            num_tokens = 1 if gap == 1 else self._share(gap, budget)
            if num_tokens > -start % block_size:  # more than what is left of its last block
                has_room = self._make_room(req, start + num_tokens, plan)
                if plan.preempted:  # whoever gave way may have left this plan
                    budget = self._limits.max_num_batched_tokens - plan.total_tokens
                if not has_room:
                    continue
            req_ids.append(req.req_id)
            starts.append(start)
            num_scheduled[req.req_id] = num_tokens
            req.num_computed_tokens = start + num_tokens  # what is scheduled counts as computed at once
            if num_tokens == gap:
                req.num_in_flight += 1  # a closed gap samples a token
            budget -= num_tokens
        return budget

    def _schedule_waiting(self, plan: SchedulerOutput, budget: int) -> int:
        """Admit while there are seats, budget and blocks for everything that is known of the request."""
        while budget > 0 and len(self._running) < self._limits.max_num_seqs:
            req = self._waiting.peek()
            if req is None:
                break
            if req.num_tokens > self._room:
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
            all_ids = [*hit.block_ids, *block_ids]
            plan.new.append(
                NewRequestData(req.req_id, req.prompt_ids, list(req.output_ids), req.params, all_ids, hit.num_tokens)
            )
            req.num_computed_tokens = hit.num_tokens
            gap = req.num_tokens_to_compute
            num_tokens = self._share(gap, budget)
            plan.num_scheduled[req.req_id] = num_tokens
            req.num_computed_tokens += num_tokens
            if num_tokens == gap:
                req.num_in_flight += 1
            budget -= num_tokens
        return budget

    def _share(self, gap: int, budget: int) -> int:
        """How much of a gap is closed in this step."""
        return self._chunk(gap, budget, self._limits.long_prefill_token_threshold)

    # --- below: when the blocks run out ---------------------------------------------------------------

    def _make_room(self, req: Request, upto: int, plan: SchedulerOutput) -> bool:
        """Blocks for tokens ``[0, upto)``, for which others may have to give way; ``False`` = not in this step."""
        while (block_ids := self._kv.allocate_slots(req, upto)) is None:
            if len(self._running) == 1:
                if upto > self._room and req.num_in_flight == 0:  # a token on its way may be the end of it
                    self._refuse(req)
                return False
            if not self._preemption.make_room(self._running, plan) or req.status is not Status.RUNNING:
                return False
        if block_ids:
            plan.cached.new_block_ids[req.req_id] = block_ids
        return True

    def _refuse(self, req: Request) -> None:
        """The whole cache is too small for ``req``: end it, or the queue would stand for ever."""
        self._lifecycle.doom(
            req,
            f"the request has {req.num_tokens:,} tokens and the whole KV cache holds {self._room:,}: shorten it, or "
            "give the cache more memory (--num-gpu-blocks-override, --kv-cache-memory-bytes)",
        )
        self._forget_ended()

    def _forget_ended(self) -> None:
        self._running = [req for req in self._running if not req.status.is_finished]
