"""The official client works unchanged."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 128, "dtype": "float32"}
USER: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def ai() -> Iterator[openai.OpenAI]:
    client = start_client(Settings.from_keywords(CONFIGS, TINY))
    config = ServerConfig(port=0, uvicorn_log_level="critical", api_key="key", enable_request_id_headers=True)
    try:
        with serve_in_thread(client, config=config) as url:
            yield openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)
    finally:
        client.shutdown()


def test_models(ai: openai.OpenAI) -> None:
    assert [model.id for model in ai.models.list()] == ["tiny"]


def test_completion(ai: openai.OpenAI) -> None:
    answer = ai.completions.create(
        model="tiny",
        prompt="hello",
        max_tokens=4,
        n=2,
        seed=1,
        logprobs=2,
        extra_body={"echo": True, "ignore_eos": True},
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.text.startswith("hello") for choice in answer.choices)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert len(logprobs.tokens) == 6 + 4
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (6, 8)
    assert answer._request_id is not None


def test_streamed_completion(ai: openai.OpenAI) -> None:
    body = {"ignore_eos": True}
    whole = ai.completions.create(model="tiny", prompt="x", max_tokens=8, temperature=0, extra_body=body)
    pieces = ai.completions.create(model="tiny", prompt="x", max_tokens=8, temperature=0, stream=True, extra_body=body)
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text


def test_chat(ai: openai.OpenAI) -> None:
    answer = ai.chat.completions.create(model="tiny", messages=USER, max_tokens=5, logprobs=True, top_logprobs=2)
    message = answer.choices[0].message
    assert message.role == "assistant"
    assert message.content is not None
    assert answer.choices[0].logprobs is not None


def test_streamed_chat_with_usage(ai: openai.OpenAI) -> None:
    *chunks, last = ai.chat.completions.create(
        model="tiny",
        messages=USER,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "length"
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 5


def test_errors_become_its_exceptions(ai: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as bad:
        ai.completions.create(model="tiny", prompt="x", temperature=-1)
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError, match="gpt-5"):
        ai.completions.create(model="gpt-5", prompt="x")
    with pytest.raises(openai.AuthenticationError):
        ai.with_options(api_key="wrong").models.list()


def test_the_real_model_answers() -> None:
    client = start_client(
        Settings.from_keywords(CONFIGS, {"dtype": "float32", "max_model_len": 256, "max_num_seqs": 2})
    )
    try:
        with serve_in_thread(client, config=ServerConfig(port=0, uvicorn_log_level="critical")) as url:
            ai = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            counted = ai.completions.create(
                model="", prompt="1, 2, 3, 4, 5,", max_tokens=11, temperature=0, stop=["8, 9"]
            )
            chat = ai.chat.completions.create(
                model=counted.model, messages=[{"role": "user", "content": "What is 2+2?"}], temperature=0
            )
    finally:
        client.shutdown()
    assert (counted.choices[0].text, counted.choices[0].finish_reason) == (" 6, 7, ", "stop")
    assert counted.usage is not None
    assert (counted.usage.prompt_tokens, counted.usage.completion_tokens) == (14, 11)
    assert chat.choices[0].message.content == "The answer to this classic math problem is 4."
    assert chat.choices[0].finish_reason == "stop"
    assert chat.usage is not None
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (37, 12)
