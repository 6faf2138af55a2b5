"""``POST /v1/chat/completions``: the next turn of a conversation.

Owns the shapes of its answers. The chat template is applied by the input processor.

vLLM: ``vllm/entrypoints/openai/serving_chat.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from stage1.outputs import CompletionOutput, RequestOutput
from stage1.server.body import read_body
from stage1.server.call import Call, Prompt, Usage, check_failures, collect, json_prompt_logprobs
from stage1.server.context import Context
from stage1.server.disconnect import until_disconnect
from stage1.server.errors import ApiError, bad_request
from stage1.server.logprobs_format import chat_logprobs
from stage1.server.protocol import ChatRequest, TokenizeRequest
from stage1.server.sampling import chat_params
from stage1.server.streaming import open_stream


def chat_router(context: Context) -> APIRouter:
    """The route over ``context``."""
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        """Answer a conversation."""
        body = await read_body(request, ChatRequest, context.config)
        call = Call.open(context, request, body, "chatcmpl")
        return await until_disconnect(request.receive, _answer(call, body))

    return router


async def render_messages(context: Context, body: ChatRequest | TokenizeRequest) -> tuple[str, list[int]]:
    """The conversation as text and as token ids, made in a thread: templates and long texts take their time.

    Raises:
        ApiError: 400, for messages that the template refuses, or a template of the request's own.
    """
    if body.chat_template is not None and not context.config.trust_request_chat_template:
        raise ApiError(
            "chat_template is not accepted from requests: leave it out or start with --trust-request-chat-template",
            param="chat_template",
        )

    def render() -> tuple[str, list[int]]:
        rendered: tuple[str, list[int]] = context.client.inputs.render_chat(
            body.messages or [],
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            chat_template=body.chat_template,
            chat_template_kwargs=body.chat_template_kwargs,
        )
        return rendered

    try:
        return await asyncio.to_thread(render)
    except ValueError as error:
        raise bad_request(error, type(body).model_fields) from error


async def _answer(call: Call, body: ChatRequest) -> Response:
    params = chat_params(body, call.context.client.default_sampling)
    text, ids = await render_messages(call.context, body)
    prompt: Prompt = text if body.add_special_tokens else {"prompt": text, "prompt_token_ids": ids}
    outputs = await call.start([prompt], params, add_special_tokens=body.add_special_tokens)
    usage = Usage(call.context.config.enable_prompt_tokens_details)
    if body.stream:
        return await open_stream(_stream(call, body, outputs, usage), call.headers)
    return JSONResponse(_whole(call, body, (await collect(outputs, 1))[0], usage), headers=call.headers)


def _whole(call: Call, body: ChatRequest, output: RequestOutput, usage: Usage) -> dict[str, Any]:
    """The answer in one piece."""
    usage.add(0, output)
    choices = []
    for completion in sorted(output.outputs, key=lambda c: c.index):
        usage.add_tokens(completion.index, len(completion.token_ids))
        message: dict[str, Any] = {
            "role": _role(call, body),
            "content": _echo(body) + completion.text,
            "refusal": None,
            "tool_calls": [],
        }
        choice = {
            "index": completion.index,
            "message": message,
            "logprobs": _logprobs(body, completion),
            "finish_reason": completion.finish_reason,
            "stop_reason": completion.stop_reason,
        }
        if body.return_token_ids:
            choice["token_ids"] = completion.token_ids
        choices.append(choice)
    return _head(call, "chat.completion") | {
        "choices": choices,
        "usage": usage.total(),
        "prompt_logprobs": json_prompt_logprobs(output) if body.prompt_logprobs is not None else None,
        "prompt_token_ids": output.prompt_token_ids if body.return_token_ids else None,
        "kv_transfer_params": output.kv_transfer_params,
    }


async def _stream(
    call: Call, body: ChatRequest, outputs: AsyncGenerator[tuple[int, RequestOutput], None], usage: Usage
) -> AsyncGenerator[dict[str, Any], None]:
    """The role of every choice, one chunk a choice and step, then the usage where it is asked for."""
    options = body.stream_options
    report = options is not None and options.include_usage
    continuous = report and options is not None and options.continuous_usage_stats

    def chunk(choice: dict[str, Any]) -> dict[str, Any]:
        whole = _head(call, "chat.completion.chunk") | {"choices": [choice]}
        return whole | {"usage": usage.of_choice(0, choice["index"])} if continuous else whole

    is_first = True
    async with aclosing(outputs) as source:
        async for _, output in source:
            check_failures(output)
            usage.add(0, output)
            if is_first:
                is_first = False
                for opening in _openings(call, body, output):
                    yield chunk(opening)
            for completion in output.outputs:
                if completion.text or completion.token_ids or completion.finished():
                    usage.add_tokens(completion.index, len(completion.token_ids))
                    yield chunk(_piece(body, completion))
    if report:
        yield _head(call, "chat.completion.chunk") | {"choices": [], "usage": usage.total()}


def _openings(call: Call, body: ChatRequest, output: RequestOutput) -> Iterator[dict[str, Any]]:
    """What comes before the first token: the role of every choice, and the echo."""
    for index in range(body.n):
        opening = _delta(index, {"role": _role(call, body), "content": ""})
        if body.return_token_ids:
            opening["prompt_token_ids"] = output.prompt_token_ids
        yield opening
        if echo := _echo(body):
            yield _delta(index, {"content": echo})


def _piece(body: ChatRequest, completion: CompletionOutput) -> dict[str, Any]:
    choice = _delta(completion.index, {"content": completion.text})
    choice["logprobs"] = _logprobs(body, completion)
    if completion.finished():
        choice["finish_reason"] = completion.finish_reason
        choice["stop_reason"] = completion.stop_reason
    if body.return_token_ids:
        choice["token_ids"] = completion.token_ids
    return choice


def _delta(index: int, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _head(call: Call, kind: str) -> dict[str, Any]:
    return {
        "id": call.response_id,
        "object": kind,
        "created": call.created,
        "model": call.context.client.model_name,
    }


def _logprobs(body: ChatRequest, completion: CompletionOutput) -> dict[str, Any] | None:
    if not body.logprobs:
        return None
    rows = completion.logprobs or []
    return chat_logprobs(completion.token_ids, rows, body.top_logprobs, as_ids=body.return_tokens_as_token_ids)


def _role(call: Call, body: ChatRequest) -> str:
    """Who speaks: the configured role in a new turn, else whoever spoke last."""
    if body.add_generation_prompt:
        return call.context.config.response_role
    return str(body.messages[-1].get("role"))


def _echo(body: ChatRequest) -> str:
    """The text of the last message, where ``echo`` asks for it."""
    if not body.echo:
        return ""
    content = body.messages[-1].get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content or ""
