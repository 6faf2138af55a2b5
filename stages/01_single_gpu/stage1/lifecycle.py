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
        self._last_step = 0  # of which a plan was made

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
        req.first_step = self._last_step + 1
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
        self._last_step = plan.step
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
        """Append what was sampled, stop what must stop. Results of requests that ended meanwhile are dropped.

        Nearly always a result is one token that ends nothing: on that way through the loop hardly anything is called.
        """
        for hook in self._hooks:
            hook.on_result(plan, out)
        outputs, self._outputs = self._outputs, EngineCoreOutputs()
        req_ids, new_ids = outputs.req_ids, outputs.new_ids
        step, now, block_size, num_scheduled = plan.step, self._clock(), self._kv.block_size, plan.num_scheduled
        failed, logprobs, prompt_logprobs = out.failed, out.logprobs, out.prompt_logprobs
        for req_id, sampled in zip(out.req_ids, out.sampled, strict=True):
            req = self.requests.get(req_id)
            if req is None or req.first_step > step:
                continue
            if failed and req_id in failed:
                self._fail(req, failed[req_id], outputs)
                continue
            if prompt_logprobs and req_id in prompt_logprobs:
                outputs.prompt_logprobs[req_id] = prompt_logprobs[req_id]
            if not sampled:  # a piece of a prompt
                self._kv.commit(req)
                if req_id in outputs.prompt_logprobs:
                    req_ids.append(req_id)
                    new_ids.append([])
                continue
            req.num_in_flight -= 1
            output_ids, end, count = req.output_ids, None, len(sampled)
            if not output_ids:
                self._timings[req_id].first_token = now
            num_tokens = req.num_prompt_tokens + len(output_ids) + count
            ends = sampled[0] in req.ending_ids or (count > 1 and not req.ending_ids.isdisjoint(sampled))
            if ends or num_tokens >= req.max_total_tokens:
                sampled, end = append_to_end(req, sampled)
            else:
                output_ids += sampled
            if (num_tokens - 1) % block_size < num_scheduled[req_id]:  # the step filled a block
                self._kv.commit(req)
            req_ids.append(req_id)
            new_ids.append(sampled)
            if logprobs and req_id in logprobs:
                outputs.logprobs[req_id] = _first(logprobs[req_id], len(sampled))
            if end is not None:
                self._finish(req, end, now, outputs)
        return outputs

    def fail(self, plan: SchedulerOutput, reason: str) -> EngineCoreOutputs:
        """End every request of ``plan`` with an error. The next plan names those that had ended once more.

        For this one may not have reached what has to forget them.
        """
        self._ended = [*plan.finished, *self._ended]
        outputs, self._outputs = self._outputs, EngineCoreOutputs()
        for req_id in plan.num_scheduled:
            req = self.requests.get(req_id)
            if req is not None and req.first_step <= plan.step:
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

    def _finish(self, req: Request, status: Status, now: float, outputs: EngineCoreOutputs) -> None:
        timings = self._timings[req.req_id]
        timings.last_token = now if req.output_ids else 0.0
        outputs.finish_reason[req.req_id] = status.value
        outputs.timings[req.req_id] = timings
        if status is Status.STOPPED and (reason := stop_reason(req)) is not None:
            outputs.stop_reason[req.req_id] = reason
        self._end(req, status)

    def _fail(self, req: Request, reason: str, outputs: EngineCoreOutputs) -> None:
        outputs.req_ids.append(req.req_id)
        outputs.new_ids.append([])
        outputs.error[req.req_id] = reason
        self._finish(req, Status.FAILED, self._clock(), outputs)

    def _end(self, req: Request, status: Status) -> None:
        req.status = status
        del self.requests[req.req_id], self._timings[req.req_id]
        self._parked.pop(req.req_id, None)
        self._ended.append(req.req_id)
        kept_by = [hook for hook in self._hooks if hook.on_finish(req)]
        if not kept_by:
            self._kv.free(req)


def append_to_end(req: Request, sampled: list[int]) -> tuple[list[int], Status | None]:
    """Append ``sampled`` up to and including the token that ends ``req``; returns what was appended, and the end."""
    for count, token in enumerate(sampled, 1):
        req.output_ids.append(token)
        if (status := check_stop(req)) is not None:
            return sampled[:count], status
    return sampled, None


def check_stop(req: Request) -> Status | None:
    """Whether the last token of ``req``'s output ends it, and how."""
    if req.output_ids[-1] in req.ending_ids and len(req.output_ids) >= req.params.min_tokens:
        return Status.STOPPED
    return Status.LENGTH if req.num_tokens >= req.max_total_tokens else None


def stop_reason(req: Request) -> int | None:
    """The stop_token_id that ended ``req``; ``None`` for an end-of-text token, unless that is ignored as one."""
    token, params = req.output_ids[-1], req.params
    asked_for = token in params.stop_token_ids and (params.ignore_eos or token not in params.eos_token_ids)
    return token if asked_for else None


def _first(rows: Logprobs, count: int) -> Logprobs:
    return Logprobs(rows.ids[:count], rows.values[:count], rows.ranks[:count])
