"""What happens to a request outside ``schedule()``: admission, results, endings.

Owns the table of live requests and their milestones. Shared by every scheduler of the six stages, which differ in what
they put into a plan and not in how they read its result. Does not choose what runs.

vLLM: ``v1/core/sched/scheduler.py`` (``update_from_output``, ``finish_requests``), ``v1/core/sched/utils.py``
(``check_stop``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stage1.interfaces import KVCacheManager, SchedulerHook
from stage1.records import EngineCoreOutputs, EngineCoreRequest, Logprobs, ModelRunnerOutput, SchedulerOutput, Timings
from stage1.request import Request, Status


class Lifecycle:
    """Live requests, from ``admit`` to ``end``."""

    def __init__(
        self,
        kv: KVCacheManager,
        max_model_len: int,
        hooks: Sequence[SchedulerHook] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.requests: dict[str, Request] = {}
        self._kv = kv
        self._max_model_len = max_model_len
        self._hooks = hooks
        self._clock = clock
        self._timings: dict[str, Timings] = {}
        self._parked: dict[str, int] = {}  # how many hooks still hold each request back
        self._ended: list[str] = []  # since the last plan; the runner has not heard of them
        self._outputs = EngineCoreOutputs()  # of what ended outside a step, for the next one to deliver

    @property
    def num_parked(self) -> int:
        """Requests that a hook holds back."""
        return len(self._parked)

    def admit(self, core: EngineCoreRequest) -> Request | None:
        """Take a request in; ``None`` when a hook parks it.

        Raises:
            ValueError: its id belongs to a live request, or its prompt leaves no room for a token.
        """
        if core.req_id in self.requests:
            raise ValueError(f"request id {core.req_id!r} is in use: wait for its end or choose another")
        if not 0 < len(core.prompt_ids) < self._max_model_len:
            raise ValueError(
                f"prompt has {len(core.prompt_ids):,} tokens; 1 to {self._max_model_len - 1:,} are possible "
                f"(max_model_len {self._max_model_len:,} less one to generate): change it or raise --max-model-len"
            )
        req = Request.from_core_request(core, self._max_model_len)
        self.requests[req.req_id] = req
        self._timings[req.req_id] = Timings(queued=self._clock())
        refusals = sum(not hook.admit(req) for hook in self._hooks)
        if refusals:
            req.status = Status.PARKED
            self._parked[req.req_id] = refusals
            return None
        return req

    def released(self) -> list[Request]:
        """Parked requests that no hook holds back any longer."""
        free = []
        for req_id in [req_id for hook in self._hooks for req_id in hook.released()]:
            if req_id not in self._parked:
                continue  # it ended while it was parked
            self._parked[req_id] -= 1
            if self._parked[req_id] == 0:
                del self._parked[req_id]
                self.requests[req_id].status = Status.WAITING
                free.append(self.requests[req_id])
        return free

    def plan_made(self, plan: SchedulerOutput) -> SchedulerOutput:
        """Complete ``plan`` with the requests that ended since the last one, and show it to the hooks.

        An empty plan may never reach what has to forget them, so it names none.
        """
        if plan.num_scheduled:
            plan.finished, self._ended = self._ended, []
        now = self._clock()
        for data in plan.new:
            timings = self._timings[data.req_id]
            timings.scheduled = timings.scheduled or now
        for hook in self._hooks:
            hook.annotate(plan)
        return plan

    def update(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> EngineCoreOutputs:
        """Append what was sampled, stop what must stop. Results of requests that ended meanwhile are dropped."""
        for hook in self._hooks:
            hook.on_result(plan, out)
        now = self._clock()
        outputs, self._outputs = self._outputs, EngineCoreOutputs()
        for req_id, sampled in zip(out.req_ids, out.sampled, strict=True):
            req = self.requests.get(req_id)
            if req is None:
                continue
            if req_id in out.failed:
                self._fail(req, out.failed[req_id], outputs)
                continue
            if prompt_logprobs := out.prompt_logprobs.get(req_id):
                outputs.prompt_logprobs[req_id] = prompt_logprobs
            if sampled:
                self._append(req, sampled, out, outputs, now)
            elif prompt_logprobs:
                outputs.req_ids.append(req_id)
                outputs.new_ids.append([])
        return outputs

    def fail(self, plan: SchedulerOutput, reason: str) -> EngineCoreOutputs:
        """End every request of ``plan`` with an error."""
        outputs = EngineCoreOutputs()
        for req_id in plan.num_scheduled:
            if (req := self.requests.get(req_id)) is not None:
                self._fail(req, reason, outputs)
        return outputs

    def doom(self, req: Request, reason: str) -> None:
        """End a request that no step can serve; the next step's outputs carry ``reason``."""
        self._fail(req, reason, self._outputs)

    def abort(self, req_ids: Sequence[str]) -> None:
        """End requests and free what they hold; unknown ids are ignored."""
        for req_id in req_ids:
            if (req := self.requests.get(req_id)) is not None:
                self._end(req, Status.ABORTED)

    # --- below: one request --------------------------------------------------------------------------

    def _append(
        self, req: Request, sampled: list[int], out: ModelRunnerOutput, outputs: EngineCoreOutputs, now: float
    ) -> None:
        """Deliver ``sampled`` up to and including the token that ends the request."""
        req.num_in_flight -= 1
        kept, status, stop_reason = 0, None, None
        for token in sampled:
            req.output_ids.append(token)
            kept += 1
            status, stop_reason = check_stop(req, token)
            if status is not None:
                break
        self._kv.commit(req)
        timings = self._timings[req.req_id]
        timings.first_token = timings.first_token or now
        timings.last_token = now

        outputs.req_ids.append(req.req_id)
        outputs.new_ids.append(sampled[:kept])
        if (rows := out.logprobs.get(req.req_id)) is not None:
            outputs.logprobs[req.req_id] = Logprobs(rows.ids[:kept], rows.values[:kept], rows.ranks[:kept])
        if status is not None:
            outputs.finish_reason[req.req_id] = status.value
            outputs.timings[req.req_id] = timings
            if stop_reason is not None:
                outputs.stop_reason[req.req_id] = stop_reason
            self._end(req, status)

    def _fail(self, req: Request, reason: str, outputs: EngineCoreOutputs) -> None:
        outputs.req_ids.append(req.req_id)
        outputs.new_ids.append([])
        outputs.finish_reason[req.req_id] = Status.FAILED.value
        outputs.error[req.req_id] = reason
        outputs.timings[req.req_id] = self._timings[req.req_id]
        self._end(req, Status.FAILED)

    def _end(self, req: Request, status: Status) -> None:
        req.status = status
        del self.requests[req.req_id], self._timings[req.req_id]
        self._parked.pop(req.req_id, None)
        self._ended.append(req.req_id)
        kept_by = [hook for hook in self._hooks if hook.on_finish(req)]
        if not kept_by:
            self._kv.free(req)


def check_stop(req: Request, token: int) -> tuple[Status | None, int | None]:
    """Whether ``token``, the last of ``req``'s output, ends it, and the stop_token_id that did."""
    params = req.params
    if len(req.output_ids) >= params.min_tokens:
        if token in params.eos_token_ids and not params.ignore_eos:
            return Status.STOPPED, None
        if token in params.stop_token_ids:
            return Status.STOPPED, token
    if req.num_tokens >= req.max_total_tokens:
        return Status.LENGTH, None
    return None, None
