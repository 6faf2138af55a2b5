"""``POST /v1/completions``: text that goes on.

Owns the shapes of its answers. Choices are numbered prompt by prompt: ``index = prompt * n + i``.

vLLM: ``vllm/entrypoints/openai/serving_completion.py``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from stage1.outputs import CompletionOutput, RequestOutput, TokenLogprobs
from stage1.server.body import read_body
from stage1.server.call import Call, Usage, as_prompt, check_failures, collect, json_prompt_logprobs
from stage1.server.context import Context
from stage1.server.disconnect import until_disconnect
from stage1.server.logprobs_format import completion_logprobs
from stage1.server.protocol import CompletionRequest
from stage1.server.sampling import completion_params
from stage1.server.streaming import open_stream


def completions_router(context: Context) -> APIRouter:
    """The route over ``context``."""
    router = APIRouter()

    @router.post("/v1/completions")
    async def completions(request: Request) -> Response:
        """Continue one or more prompts."""
        body = await read_body(request, CompletionRequest, context.config)
        call = Call.open(context, request, body, "cmpl")
        return await until_disconnect(request.receive, _answer(call, body))

    return router


async def _answer(call: Call, body: CompletionRequest) -> Response:
    params = completion_params(body, call.context.client.default_sampling)
    prompts = [as_prompt(prompt) for prompt in body.prompt]
    outputs = await call.start(prompts, params, add_special_tokens=body.add_special_tokens)
    usage = Usage(call.context.config.enable_prompt_tokens_details)
    choices = _Choices(call, body)
    if body.stream:
        return await open_stream(_stream(call, body, outputs, choices, usage), call.headers)
    return JSONResponse(_whole(call, await collect(outputs, len(prompts)), choices, usage), headers=call.headers)


def _whole(call: Call, finals: list[RequestOutput], choices: _Choices, usage: Usage) -> dict[str, Any]:
    """The answer in one piece."""
    answer = _head(call)
    for i, output in enumerate(finals):
        usage.add(i, output)
        for completion in output.outputs:
            choice = choices.render(i, output, completion)
            usage.add_tokens(choice["index"], choices.num_tokens(completion))
            choice["prompt_logprobs"] = json_prompt_logprobs(output) if choices.wants_prompt_logprobs else None
            answer["choices"].append(choice)
    answer["choices"].sort(key=lambda choice: choice["index"])
    answer["usage"] = usage.total()
    answer["kv_transfer_params"] = finals[0].kv_transfer_params
    return answer


async def _stream(
    call: Call,
    body: CompletionRequest,
    outputs: AsyncGenerator[tuple[int, RequestOutput], None],
    choices: _Choices,
    usage: Usage,
) -> AsyncGenerator[dict[str, Any], None]:
    """One chunk a choice and step, then the usage where it is asked for."""
    options = body.stream_options
    report = options is not None and options.include_usage
    async with aclosing(outputs) as source:
        async for i, output in source:
            check_failures(output)
            usage.add(i, output)
            for completion in output.outputs:
                if not (completion.text or completion.token_ids or completion.finished()):
                    continue
                choice = choices.render(i, output, completion)
                usage.add_tokens(choice["index"], choices.num_tokens(completion))
                chunk = _head(call) | {"choices": [choice]}
                if report and options is not None and options.continuous_usage_stats:
                    chunk["usage"] = usage.of_choice(i, choice["index"])
                yield chunk
    if report:
        yield _head(call) | {"usage": usage.total()}


def _head(call: Call) -> dict[str, Any]:
    return {
        "id": call.response_id,
        "object": "text_completion",
        "created": call.created,
        "model": call.context.client.model_name,
        "choices": [],
        "service_tier": None,
        "system_fingerprint": None,
        "usage": None,
    }


class _Choices:
    """Renders choices, whole or piece by piece: what was sent of each decides what its next piece holds."""

    def __init__(self, call: Call, body: CompletionRequest) -> None:
        self._body = body
        self._tokenizer = call.context.client.tokenizer
        self._text_lengths: dict[int, int] = {}  # choice → characters of its token texts so far
        self._prompt_logprobs: dict[int, list[TokenLogprobs | None]] = {}  # by prompt; a stream tells them once
        self.wants_prompt_logprobs = body.prompt_logprobs is not None

    def num_tokens(self, completion: CompletionOutput) -> int:
        """Tokens that count as output: with ``max_tokens`` 0 the one that the engine made does not."""
        return 0 if self._body.max_tokens == 0 else len(completion.token_ids)

    def render(self, prompt_index: int, output: RequestOutput, completion: CompletionOutput) -> dict[str, Any]:
        """The choice, or its next piece; the first piece begins with the prompt where ``echo`` asks for it."""
        index = prompt_index * self._body.n + completion.index
        if output.prompt_logprobs is not None:
            self._prompt_logprobs[prompt_index] = output.prompt_logprobs
        is_first = index not in self._text_lengths
        self._text_lengths.setdefault(index, 0)
        echoed = self._body.echo and is_first
        dropped = self._body.max_tokens == 0
        text = "" if dropped else completion.text
        choice = {
            "index": index,
            "text": self._prompt_text(prompt_index, output) + text if echoed else text,
            "logprobs": self._logprobs(index, output, completion, echoed, dropped),
            "finish_reason": completion.finish_reason,
            "stop_reason": None if dropped else completion.stop_reason,
            "token_ids": None,
            "prompt_token_ids": None,
        }
        if self._body.return_token_ids:
            choice["token_ids"] = [] if dropped else completion.token_ids
            choice["prompt_token_ids"] = output.prompt_token_ids if is_first else None
        return choice

    def _prompt_text(self, prompt_index: int, output: RequestOutput) -> str:
        """What the client sent, where that is what the model saw; else the tokens, special ones included."""
        sent = self._body.prompt[prompt_index]
        if isinstance(sent, str) and self._body.truncate_prompt_tokens is None:
            return sent
        return str(self._tokenizer.decode(output.prompt_token_ids, skip_special_tokens=False))

    def _logprobs(
        self, index: int, output: RequestOutput, completion: CompletionOutput, echoed: bool, dropped: bool
    ) -> dict[str, Any] | None:
        if (num_top := self._body.logprobs) is None:
            return None
        token_ids: list[int] = []
        rows: list[TokenLogprobs | None] = []
        if echoed:
            token_ids += output.prompt_token_ids
            rows += self._prompt_logprobs[index // self._body.n]
        if not dropped:
            token_ids += completion.token_ids
            rows += completion.logprobs or []
        formatted = completion_logprobs(
            token_ids,
            rows,
            num_top,
            self._decode,
            offset=self._text_lengths[index],
            as_ids=self._body.return_tokens_as_token_ids,
        )
        self._text_lengths[index] += sum(map(len, formatted["tokens"]))
        return formatted

    def _decode(self, token_id: int) -> str:
        return str(self._tokenizer.decode([token_id]))
