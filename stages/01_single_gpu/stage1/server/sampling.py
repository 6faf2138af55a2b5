"""From a request's fields to ``SamplingParams``.

Owns which fields are copied, the checkpoint's defaults, and the names of what is refused. Ranges are checked by
``SamplingParams`` itself.

vLLM: ``to_sampling_params`` in ``vllm/entrypoints/openai/protocol.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stage1.params import RequestOutputKind, SamplingParams
from stage1.server.errors import ApiError, bad_request
from stage1.server.protocol import ChatRequest, CompletionRequest, GenerateBody

# Fields that bear the same name on both sides.
_COPIED = (
    *("n", "temperature", "top_p", "top_k", "min_p", "seed", "min_tokens", "ignore_eos"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("stop", "stop_token_ids", "include_stop_str_in_output"),
    *("bad_words", "logit_bias", "allowed_token_ids"),
    *("skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens"),
)

# What no stage has. A field counts as given when it is neither null nor empty nor its harmless default.
_REFUSED: dict[str, object] = {
    "suffix": None,
    "prompt_embeds": None,
    "use_beam_search": False,
    "length_penalty": 1.0,
    "logits_processors": None,
    "tools": None,
    "functions": None,
    "function_call": "none",
    "documents": None,
}


def completion_params(body: CompletionRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Parameters of a completion. ``max_tokens`` 0 (with echo) still makes one token, which the answer drops."""
    if body.max_tokens == 0 and not body.echo:
        raise ApiError("max_tokens must be at least 1, not 0: only with echo may it be 0", param="max_tokens")
    prompt_logprobs = body.prompt_logprobs
    if body.echo and body.logprobs is not None:  # echoed tokens have log-probabilities, too
        prompt_logprobs = body.logprobs if prompt_logprobs is None else _larger(prompt_logprobs, body.logprobs)
    limit = 16 if body.max_tokens is None else body.max_tokens or 1
    return _params(body, defaults, max_tokens=limit, logprobs=body.logprobs, prompt_logprobs=prompt_logprobs)


def chat_params(body: ChatRequest, defaults: Mapping[str, Any]) -> SamplingParams:
    """Parameters of a chat answer; without a limit it may fill ``max_model_len``."""
    top = body.top_logprobs
    if top and not body.logprobs:
        raise ApiError(f"top_logprobs is {top} without logprobs: set logprobs to true", param="top_logprobs")
    if top < -1:
        raise ApiError(f"top_logprobs must be at least 0 (or -1 for all), not {top}", param="top_logprobs")
    limit = body.max_completion_tokens if body.given("max_completion_tokens") else body.max_tokens
    logprobs = top if body.logprobs else None
    return _params(body, defaults, max_tokens=limit, logprobs=logprobs, prompt_logprobs=body.prompt_logprobs)


def _params(body: GenerateBody, defaults: Mapping[str, Any], **values: Any) -> SamplingParams:
    refuse_missing(body)
    known = SamplingParams.__struct_fields__
    chosen = {name: value for name, value in defaults.items() if name in known and name not in values}
    chosen.update({name: getattr(body, name) for name in _COPIED if body.given(name)})
    if not chosen.get("logit_bias"):
        chosen.pop("logit_bias", None)
    kind = RequestOutputKind.DELTA if body.stream else RequestOutputKind.FINAL_ONLY
    values |= {"output_kind": kind, "structured_outputs": _constraint(body), "extra_args": body.vllm_xargs}
    try:
        return SamplingParams(**chosen, **values)
    except ValueError as error:
        raise bad_request(error, type(body).model_fields) from error


def refuse_missing(body: GenerateBody) -> None:
    """Name the first field that asks for something that no stage has, or that contradicts another.

    Raises:
        ApiError: 400.
    """
    for name, harmless in _REFUSED.items():
        value = getattr(body, name, harmless)
        if value != harmless and value not in (None, "", [], {}):
            if name == "tools" and getattr(body, "tool_choice", None) == "none":
                continue
            raise ApiError(f"{name} is not supported: leave it out", param=name)
    if getattr(body, "tool_choice", None) not in (None, "none"):
        raise ApiError("tool_choice is not supported other than 'none': leave it out", param="tool_choice")
    if body.stream_options is not None and not body.stream:
        raise ApiError("stream_options needs stream: set it to true or leave both out", param="stream_options")
    if body.stream and body.prompt_logprobs is not None:
        raise ApiError("prompt_logprobs is not available with stream: leave one of them out", param="prompt_logprobs")


def _constraint(body: GenerateBody) -> dict[str, Any] | None:
    """``response_format`` in the terms of ``structured_outputs``."""
    if (form := body.response_format) is None:
        return body.structured_outputs
    kind = form.get("type")
    if kind == "text":
        return body.structured_outputs
    if body.structured_outputs is not None:
        raise ApiError("response_format and structured_outputs exclude each other: give one", param="response_format")
    if kind == "json_object":
        return {"json_object": True}
    if kind == "json_schema":
        named = form.get("json_schema")
        if not isinstance(named, dict) or not isinstance(named.get("schema"), dict):
            raise ApiError("response_format of type json_schema needs json_schema.schema", param="response_format")
        return {"json": named["schema"]}
    if kind == "structural_tag":
        return {"structural_tag": json.dumps(form)}
    raise ApiError(
        f"response_format has the type {str(kind)[:40]!r}; known are text, json_object, json_schema and structural_tag",
        param="response_format",
    )


def _larger(a: int, b: int) -> int:
    return -1 if -1 in (a, b) else max(a, b)
