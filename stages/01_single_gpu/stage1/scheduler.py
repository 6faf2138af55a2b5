"""Static batching: fill a batch, run it to its last token, then fill the next.

Owns the order of requests. Does not read results: that is ``Lifecycle``. Its waste is the motive of stage 2 — a request
that ends early leaves its seat empty until the slowest of its batch is done:

    step      1 2 3 4 5 6 7 8
    A         P d d d d d d d
    B         P d d . . . . .     empty seats, while C waits
    C                         P …

There are no phases: every step closes each request's gap between computed and known tokens. A prompt is computed in one
piece, in the first step whose budget has room for it.

vLLM: ``v1/core/sched/scheduler.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

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


class StaticScheduler:
    """``Scheduler`` with up to ``max_num_seqs`` requests a batch and ``token_budget`` tokens a step."""

    def __init__(self, lifecycle: Lifecycle, kv: KVCacheManager, max_num_seqs: int, token_budget: int) -> None:
        self._lifecycle = lifecycle
        self._kv = kv
        self._max_num_seqs = max_num_seqs
        self._token_budget = token_budget
        self._waiting: deque[Request] = deque()
        self._batch: list[Request] = []
        self._blocks_to_send: dict[str, list[int]] = {}  # of requests that have not been in a plan
        self._step = 0
        self._scheduled_tokens = 0

    @property
    def has_work(self) -> bool:
        """Whether a live request is left."""
        return bool(self._lifecycle.requests)

    def add(self, request: EngineCoreRequest) -> None:
        """Queue a request, first come first served."""
        req = self._lifecycle.admit(request)
        if req is not None:
            self._waiting.append(req)

    def abort(self, req_ids: Sequence[str]) -> None:
        """End requests now; unknown ids are ignored."""
        self._lifecycle.abort(req_ids)
        self._forget_ended()
        self._waiting = deque(req for req in self._waiting if not req.status.is_finished)

    def schedule(self) -> SchedulerOutput:
        """The next step: the whole gap of each request of the batch, as far as the budget goes."""
        self._waiting.extend(self._lifecycle.released())
        if not self._batch:
            self._fill_batch()
        self._step += 1
        plan = SchedulerOutput(step=self._step, new=[], cached=CachedRequests(), num_scheduled={})
        budget = self._token_budget
        for req in self._batch:
            num_tokens = req.num_tokens_to_compute
            if not 0 < num_tokens <= budget:
                continue
            budget -= num_tokens
            self._put(plan, req, num_tokens)
        self._scheduled_tokens = self._token_budget - budget
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
            num_running=len(self._batch),
            num_waiting=len(self._waiting) + self._lifecycle.num_parked,
            scheduled_tokens=self._scheduled_tokens,
            kv_usage=self._kv.usage,
        )

    # --- below: the batch ----------------------------------------------------------------------------

    def _fill_batch(self) -> None:
        """Move requests from waiting to the batch while there are seats and blocks."""
        while self._waiting and len(self._batch) < self._max_num_seqs:
            req = self._waiting[0]
            hit = self._kv.lookup(req)
            if hit is None:
                break
            self._kv.adopt(req, hit)
            block_ids = self._kv.allocate_slots(req, req.num_tokens)
            if block_ids is None:
                break
            self._waiting.popleft()
            req.status = Status.RUNNING
            req.num_computed_tokens = hit.num_tokens
            self._blocks_to_send[req.req_id] = [*hit.block_ids, *block_ids]
            self._batch.append(req)

    def _put(self, plan: SchedulerOutput, req: Request, num_tokens: int) -> None:
        """Add ``req`` to ``plan``; what is scheduled counts as computed at once."""
        block_ids = self._blocks_to_send.pop(req.req_id, None)
        if block_ids is None:
            plan.cached.req_ids.append(req.req_id)
            plan.cached.num_computed.append(req.num_computed_tokens)
            if new_ids := self._kv.allocate_slots(req, req.num_computed_tokens + num_tokens):
                plan.cached.new_block_ids[req.req_id] = new_ids
        else:
            plan.new.append(
                NewRequestData(
                    req.req_id, req.prompt_ids, list(req.output_ids), req.params, block_ids, req.num_computed_tokens
                )
            )
        plan.num_scheduled[req.req_id] = num_tokens
        req.num_computed_tokens += num_tokens
        if req.num_computed_tokens == req.num_tokens + req.num_in_flight:
            req.num_in_flight += 1

    def _forget_ended(self) -> None:
        """Drop what has ended from the batch."""
        self._batch = [req for req in self._batch if not req.status.is_finished]
        self._blocks_to_send = {k: v for k, v in self._blocks_to_send.items() if k in self._lifecycle.requests}
