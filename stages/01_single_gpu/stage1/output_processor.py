"""Token ids to what users read: the way back of every request.

Owns the requests that have not ended, seen from the front: their completions, metrics and prompt log-probabilities.
Does not know the scheduler; the one thing it tells the core is which requests a stop string has ended.

vLLM: ``v1/engine/output_processor.py``, ``v1/engine/parallel_sampling.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from stage1.completion import Completion, TextOf, token_logprobs
from stage1.detokenizer import DetokenizerFactory
from stage1.input_processor import Admission
from stage1.outputs import RequestMetrics, RequestOutput, TokenLogprobs
from stage1.params import RequestOutputKind
from stage1.records import EngineCoreOutputs, PromptLogprobs, Timings


@dataclass(slots=True)
class Processed:
    """What one step or one abort brought."""

    outputs: list[RequestOutput] = field(default_factory=list)  # one a request at most
    aborts: list[str] = field(default_factory=list)  # ended here, not in the core, which must let go of these req_ids


class OutputProcessor:
    """Turns the core's outputs into ``RequestOutput``; one for each front end.

    ``clock`` gives ``time.time()`` seconds for the milestones that the core has not reported yet.
    """

    def __init__(self, tokenizer: Any, *, clock: Callable[[], float] = time.time) -> None:
        self._detokenizers = DetokenizerFactory(tokenizer)
        self._clock = clock
        self._requests: dict[str, _Request] = {}  # by the user's id
        self._children: dict[str, tuple[_Request, Completion]] = {}  # by the core's id, unfinished ones

    @property
    def has_unfinished(self) -> bool:
        """Whether any request is still open."""
        return bool(self._requests)

    def add(self, admission: Admission) -> None:
        """Expect outputs for ``admission``; call it before the core can answer.

        Raises:
            ValueError: a live request has the same ``request_id``.
        """
        if admission.request_id in self._requests:
            raise ValueError(f"request id {admission.request_id!r} is in use: wait for its end or choose another")
        completions = []
        for index, child in enumerate(admission.children):
            params = child.params
            detokenizer = self._detokenizers.make(
                admission.prompt_ids,
                detokenize=params.detokenize,
                skip_special_tokens=params.skip_special_tokens,
                spaces_between_special_tokens=params.spaces_between_special_tokens,
            )
            text_of = self._detokenizers.text_of if params.detokenize else _no_text
            completions.append(Completion(index, params, detokenizer, text_of))
        request = self._requests[admission.request_id] = _Request(admission, completions)
        for child, completion in zip(admission.children, completions, strict=True):
            self._children[child.req_id] = request, completion

    def process(self, outputs: EngineCoreOutputs) -> Processed:
        """Take in one step. Ids that are not known (any more) are ignored: they were aborted a moment ago.

        Each request gives at most one ``RequestOutput``, which holds the news of all its completions.
        """
        processed = Processed()
        now = self._clock()
        touched: dict[str, _Request] = {}
        for req_id, new_ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            if (entry := self._children.get(req_id)) is None:
                continue
            request, completion = entry
            touched[request.admission.request_id] = request
            request.note(req_id, outputs, self._detokenizers.text_of)
            request.add_timings(outputs.timings.get(req_id) or _seen(now, new_ids))
            ended_in_core = outputs.finish_reason.get(req_id)
            completion.push(
                new_ids,
                outputs.logprobs.get(req_id),
                ended_in_core,
                outputs.stop_reason.get(req_id),
                outputs.error.get(req_id),
            )
            if completion.finish_reason is not None:
                del self._children[req_id]
                if ended_in_core is None:
                    processed.aborts.append(req_id)
        for request in touched.values():
            if request.finished:
                del self._requests[request.admission.request_id]
            if (output := request.output()) is not None:
                processed.outputs.append(output)
        return processed

    def abort(self, request_id: str) -> Processed:
        """End a request from the front: its last output, and the req_ids that still run in the core.

        An unknown id gives neither.
        """
        request = self._requests.pop(request_id, None)
        if request is None:
            return Processed()
        req_ids = [child.req_id for child in request.admission.children if child.req_id in self._children]
        for req_id in req_ids:
            _, completion = self._children.pop(req_id)
            completion.push([], finish_reason="abort")
        output = request.output()
        return Processed([] if output is None else [output], req_ids)

    def fail_all(self, reason: str) -> list[RequestOutput]:
        """The engine is dead: the last output of every open request, with ``reason`` as its error."""
        for _, completion in self._children.values():
            completion.push([], finish_reason="error", error=reason)
        requests = list(self._requests.values())
        self._requests.clear()
        self._children.clear()
        return [output for request in requests if (output := request.output()) is not None]


class _Request:
    """A request as its user sees it: one prompt and its completions."""

    def __init__(self, admission: Admission, completions: list[Completion]) -> None:
        self.admission = admission
        self._completions = completions
        self._kind = admission.params.output_kind
        self._metrics = RequestMetrics(arrival_time=admission.arrival_time)
        self._num_cached_tokens: int | None = None
        self._kv_transfer_params: dict[str, Any] | None = None
        self._prompt_logprobs: list[TokenLogprobs | None] | None = None
        if admission.params.prompt_logprobs is not None:
            self._prompt_logprobs = [None] * len(admission.prompt_ids)

    @property
    def finished(self) -> bool:
        """Whether every completion has ended."""
        return all(completion.finish_reason is not None for completion in self._completions)

    def note(self, req_id: str, outputs: EngineCoreOutputs, text_of: TextOf) -> None:
        """Take what ``outputs`` says of the request as a whole."""
        if (cached := outputs.num_cached_tokens.get(req_id)) is not None and self._num_cached_tokens is None:
            self._num_cached_tokens = cached
        if req_id in outputs.kv_transfer_params:
            self._kv_transfer_params = outputs.kv_transfer_params[req_id]
        if req_id in outputs.prompt_logprobs:
            self._add_prompt_logprobs(outputs.prompt_logprobs[req_id], text_of)

    def add_timings(self, timings: Timings) -> None:
        """First milestones are the earliest of all completions, the last token's is the latest."""
        ours = self._metrics
        for name in ("queued", "scheduled", "first_token"):
            seen = [value for value in (getattr(ours, name), getattr(timings, name)) if value]
            setattr(ours, name, min(seen, default=0.0))
        ours.last_token = max(ours.last_token, timings.last_token)

    def output(self) -> RequestOutput | None:
        """The next delivery, as the request's output_kind wants it; ``None`` when there is nothing to deliver."""
        finished = self.finished
        if self._kind is RequestOutputKind.FINAL_ONLY and not finished:
            return None
        news = [completion for completion in self._completions if completion.has_news]
        if not news:
            return None
        prompt_logprobs = self._prompt_logprobs
        if self._kind is RequestOutputKind.DELTA:
            outputs = [completion.delta() for completion in news]
            self._prompt_logprobs = None  # delivered once, with the first tokens
        else:
            outputs = [completion.whole() for completion in self._completions]
        return RequestOutput(
            request_id=self.admission.request_id,
            prompt=self.admission.prompt,
            prompt_token_ids=self.admission.prompt_ids,
            outputs=outputs,
            finished=finished,
            prompt_logprobs=prompt_logprobs,
            metrics=replace(self._metrics),
            num_cached_tokens=self._num_cached_tokens,
            kv_transfer_params=self._kv_transfer_params,
        )

    def _add_prompt_logprobs(self, part: PromptLogprobs, text_of: TextOf) -> None:
        """Enter a part by position: after a preemption the same positions come again and are left as they are."""
        entries = self._prompt_logprobs
        if entries is None:
            return
        for row in range(len(part.rows.ids)):
            if entries[part.start + row] is None:
                entries[part.start + row] = token_logprobs(part.rows, row, text_of)


def _seen(now: float, new_ids: list[int]) -> Timings:
    """What the front end can tell of a request's milestones while the core has not reported them."""
    return Timings(first_token=now, last_token=now) if new_ids else Timings()


def _no_text(token_id: int) -> None:
    """For requests that want tokens only."""
