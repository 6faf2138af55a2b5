"""The request schemas: every field that any stage understands.

Owns names, types and defaults. Types are strict (``"2"``, ``2.0`` and ``true`` are no integers), an explicit null means
the default, and unknown fields are kept aside. Does not know the model: ranges are checked by ``SamplingParams`` and
by the input processor.

vLLM: ``vllm/entrypoints/openai/protocol.py``.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

MAX_PROMPTS = 16_384  # in one request; what may run is limited by ``ServerConfig.max_choices``


def _parse_prompts(value: object) -> list[str] | list[list[int]]:
    """``str``, ``[str]``, ``[int]`` or ``[[int]]`` → prompts: ``[1, 2]`` is one, ``["1", "2"]`` are two."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        kinds = set(map(type, value))
        if int not in kinds and len(value) > MAX_PROMPTS:
            raise ValueError(f"prompt has {len(value):,} prompts; the limit is {MAX_PROMPTS:,}: send several requests")
        if kinds == {str}:
            return value
        if kinds == {int}:
            return [value]
        if kinds == {list} and all(ids and set(map(type, ids)) == {int} for ids in value):
            return value
    raise ValueError("prompt must be a string, a list of token ids or a list of such prompts of one kind, not empty")


def _parse_stop(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _parse_bias(value: object) -> object:
    if not isinstance(value, dict):
        return value
    for key in value:
        if not key.removeprefix("-").isdecimal() or len(key) > 12:
            raise ValueError(f"logit_bias has the key {key[:40]!r}; keys must be token ids")
    return {int(key): bias for key, bias in value.items()}


class Body(BaseModel):
    """What all requests share: strict types, null = default, unknown fields tolerated."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {name: v for name, v in data.items() if v is not None} if isinstance(data, dict) else data

    def given(self, name: str) -> bool:
        """Whether the request sets this field (null does not)."""
        return name in self.model_fields_set


class StreamOptions(Body):
    """When a stream reports usage. The object given without ``include_usage`` asks for it."""

    include_usage: bool = True
    continuous_usage_stats: bool = False


class GenerateBody(Body):
    """The fields of completions and chat alike."""

    model: str = ""  # empty = the one that is served

    # sampling: copied into SamplingParams by name
    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: Annotated[list[str], BeforeValidator(_parse_stop)] = []
    stop_token_ids: list[int] = []
    bad_words: list[str] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    logit_bias: Annotated[dict[int, float], BeforeValidator(_parse_bias)] = {}
    allowed_token_ids: list[int] | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | None = None
    max_tokens: int | None = None

    # what the answer holds
    stream: bool = False
    stream_options: StreamOptions | None = None
    echo: bool = False
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False

    # constraints on the output, from stage 3 on
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None

    # routing
    request_id: str | None = None
    priority: int = 0
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None

    # accepted for the sake of clients, without effect
    user: Any = None
    best_of: Any = None
    service_tier: Any = None
    metadata: Any = None
    store: Any = None

    # refused by name
    use_beam_search: bool = False
    length_penalty: float = 1.0
    logits_processors: Any = None


class CompletionRequest(GenerateBody):
    """``POST /v1/completions``."""

    prompt: Annotated[list[str] | list[list[int]], PlainValidator(_parse_prompts)]
    max_tokens: int | None = 16
    logprobs: int | None = None
    add_special_tokens: bool = True
    suffix: Any = None
    prompt_embeds: Any = None


class ChatRequest(GenerateBody):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None  # wins over max_tokens; without either, up to max_model_len
    logprobs: bool = False
    top_logprobs: int = 0
    add_special_tokens: bool = False  # the template writes them
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: Any = None  # without effect, like the next two
    include_reasoning: Any = None
    parallel_tool_calls: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    documents: Any = None
    prompt_embeds: Any = None


class TokenizeRequest(Body):
    """``POST /tokenize``: a prompt, or messages."""

    model: str = ""
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None  # with a prompt true by default, with messages false
    return_token_strs: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Any = None


class DetokenizeRequest(Body):
    """``POST /detokenize``."""

    model: str = ""
    tokens: list[Annotated[int, Field(ge=0)]]
