"""One request on its way through the engine: ids, prompts, outputs, counts.

Owns what completions and chat do alike between schema and answer. Does not know what an answer looks like.

vLLM: ``vllm/entrypoints/openai/serving_engine.py``, ``merge_async_iterators`` in ``vllm/utils``.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from stage1.outputs import RequestOutput
from stage1.params import SamplingParams
from stage1.server.context import Context
from stage1.server.errors import ApiError, bad_request
from stage1.server.protocol import GenerateBody

_VALID_ID = re.compile(r"[\x21-\x7e]{1,256}")
_LONG = 10_000  # characters or tokens; checking more takes milliseconds, which the event loop cannot spare

Prompt = str | dict[str, Any]  # text, or {"prompt_token_ids": ids}


@dataclass(frozen=True)
class Call:
    """A request that has passed the checks that need no tokens."""

    context: Context
    body: GenerateBody
    request_id: str  # as the client knows it
    response_id: str
    rank: int | None  # X-data-parallel-rank
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def open(cls, context: Context, request: Request, body: GenerateBody, prefix: str) -> Call:
        """Name the request and check its model and headers.

        Raises:
            ApiError: 404 for another model, 400 for a bad id or rank.
        """
        context.check_model(body.model)
        request_id = request.headers.get("x-request-id") or body.request_id or uuid.uuid4().hex
        if not _VALID_ID.fullmatch(request_id):
            raise ApiError("request_id must be 1 to 256 printable ASCII characters", param="request_id")
        rank = request.headers.get("x-data-parallel-rank")
        if rank is not None and not (rank.isascii() and rank.isdecimal() and len(rank) < 6):
            raise ApiError(f"X-data-parallel-rank is {rank[:40]!r}; it must be a rank", param="data_parallel_rank")
        return cls(context, body, request_id, f"{prefix}-{request_id}", int(rank) if rank else None)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the answer."""
        return {"X-Request-Id": self.request_id} if self.context.config.enable_request_id_headers else {}

    async def start(
        self, prompts: Sequence[Prompt], params: SamplingParams, *, add_special_tokens: bool
    ) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Check and tokenise all prompts, then stream (prompt index, output) as outputs come.

        Raises:
            ApiError: 400, before anything has been computed.
        """
        limit = self.context.config.max_choices
        if len(prompts) * params.n > limit:
            raise ApiError(
                f"{len(prompts):,} prompts x n = {params.n} is {len(prompts) * params.n:,} completions; "
                f"at most {limit:,} fit into one request: send several or raise --max-choices",
                param="n",
            )
        streams = []
        for i, prompt in enumerate(prompts):
            name = self.response_id if len(prompts) == 1 else f"{self.response_id}-{i}"
            # A stream that was never read has not reached the engine, so a bad prompt needs no clean-up of its elders.
            streams.append(await self._admit(prompt, params, name, add_special_tokens))
        return merge(streams)

    async def _admit(
        self, prompt: Prompt, params: SamplingParams, name: str, add_special_tokens: bool
    ) -> AsyncIterator[RequestOutput]:
        options = {
            "priority": self.body.priority,
            "cache_salt": self.body.cache_salt,
            "kv_transfer_params": self.body.kv_transfer_params,
            "data_parallel_rank": self.rank,
            "add_special_tokens": add_special_tokens,
        }

        def generate() -> AsyncIterator[RequestOutput]:
            return self.context.client.generate(prompt, params, request_id=name, **options)

        length = len(prompt) if isinstance(prompt, str) else len(prompt["prompt_token_ids"])
        try:
            takes_long = length > _LONG or params.structured_outputs is not None
            return await asyncio.to_thread(generate) if takes_long else generate()
        except ValueError as error:
            raise bad_request(error, (*type(self.body).model_fields, "prompt")) from error


async def merge(streams: Sequence[AsyncIterator[RequestOutput]]) -> AsyncGenerator[tuple[int, RequestOutput], None]:
    """Outputs of all streams in the order in which they come. Closing this closes, and so aborts, them all."""
    waiting = {asyncio.ensure_future(anext(stream)): i for i, stream in enumerate(streams)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=waiting.__getitem__):
                i = waiting.pop(task)
                try:
                    output = task.result()
                except StopAsyncIteration:
                    continue
                except ValueError as error:  # what can only be found out on arrival, such as an id in use
                    raise bad_request(error) from error
                waiting[asyncio.ensure_future(anext(streams[i]))] = i
                yield i, output
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]


async def collect(outputs: AsyncGenerator[tuple[int, RequestOutput], None], num_prompts: int) -> list[RequestOutput]:
    """The final output of every prompt.

    Raises:
        ApiError: 500, one of them failed while it ran.
    """
    final: dict[int, RequestOutput] = {}
    async with aclosing(outputs) as stream:
        async for i, output in stream:
            check_failures(output)
            final[i] = output
    return [final[i] for i in range(num_prompts)]


def check_failures(output: RequestOutput) -> None:
    """Raise a 500 if a completion of ``output`` failed while it ran."""
    for completion in output.outputs:
        if completion.finish_reason == "error":
            raise ApiError(completion.error or "the request failed while it ran", status=500)


class Usage:
    """Counts tokens over all prompts and choices: each prompt once, however many choices it has."""

    def __init__(self, show_cached: bool) -> None:
        self._show_cached = show_cached
        self._prompts: dict[int, int] = {}
        self._cached: dict[int, int] = {}
        self._completions: dict[int, int] = {}  # choice index → tokens

    def add(self, prompt_index: int, output: RequestOutput) -> None:
        """Note a prompt's length, as every output tells it."""
        self._prompts[prompt_index] = len(output.prompt_token_ids)
        if output.num_cached_tokens is not None:
            self._cached[prompt_index] = output.num_cached_tokens

    def add_tokens(self, choice: int, num_tokens: int) -> None:
        """Count new tokens of a choice."""
        self._completions[choice] = self._completions.get(choice, 0) + num_tokens

    def total(self) -> dict[str, Any]:
        """The ``usage`` of the whole request."""
        return self._render(sum(self._prompts.values()), sum(self._completions.values()), sum(self._cached.values()))

    def of_choice(self, prompt_index: int, choice: int) -> dict[str, Any]:
        """The ``usage`` of one choice so far."""
        cached = self._cached.get(prompt_index, 0)
        return self._render(self._prompts[prompt_index], self._completions.get(choice, 0), cached)

    def _render(self, prompt: int, completion: int, cached: int) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }
        if self._show_cached and cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage


def as_prompt(prompt: str | list[int]) -> Prompt:
    """A prompt in the form that the client takes."""
    return prompt if isinstance(prompt, str) else {"prompt_token_ids": prompt}


def json_prompt_logprobs(output: RequestOutput) -> list[Mapping[str, Any] | None] | None:
    """``prompt_logprobs`` of an answer: token id → logprob, rank and text; the first is null."""
    if output.prompt_logprobs is None:
        return None
    return [
        None
        if row is None
        else {
            str(token): {"logprob": lp.logprob, "rank": lp.rank, "decoded_token": lp.decoded_token}
            for token, lp in row.items()
        }
        for row in output.prompt_logprobs
    ]
