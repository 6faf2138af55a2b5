"""The API's answers in one piece, from the tiny model over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client
from stage1.text_client import TextClient

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 256, "dtype": "float32", "max_num_seqs": 4}
QUIET = ServerConfig(port=0, uvicorn_log_level="critical", disable_uvicorn_access_log=True)


@contextmanager
def served(config: ServerConfig = QUIET, **server: Any) -> Iterator[tuple[httpx.Client, TextClient]]:
    client = start_client(Settings.from_keywords(CONFIGS, TINY))
    try:
        with (
            serve_in_thread(client, config=config, **server) as url,
            httpx.Client(base_url=url, timeout=60, verify=False) as http,
        ):
            yield http, client
    finally:
        client.shutdown()


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    async def extra() -> str:
        return "extra_metric 1.0\n"

    router = APIRouter()
    router.add_api_route("/extra", lambda: {"here": True})
    with served(routers=[router], collectors=[extra], parts={"sampler": "yours"}) as (http, _):
        yield http


def complete(http: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    parsed: dict[str, Any] = json.loads(answer.text, parse_constant=pytest.fail)
    return parsed


def chat(http: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], **body})
    assert answer.status_code == 200, answer.text
    parsed: dict[str, Any] = json.loads(answer.text, parse_constant=pytest.fail)
    return parsed


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/version", "/status", "/metrics", "/"])
def test_get_and_head(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code == 200
    head = http.head(path)
    assert (head.status_code, head.content) == (200, b"")


def test_what_the_server_says_of_itself(http: httpx.Client) -> None:
    assert http.get("/health").content == b""
    (card,) = http.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["max_model_len"], card["root"]) == ("tiny", "model", 256, "tiny")
    status = http.get("/status").json()
    assert (status["stage"], status["model"], status["dead"]) == (1, "tiny", None)
    assert status["parts"] == [{"name": "sampler", "source": "yours"}]


def test_routers_and_collectors_of_the_caller(http: httpx.Client) -> None:
    assert http.get("/extra").json() == {"here": True}
    text = http.get("/metrics").text
    assert 'vllm:num_requests_running{model_name="tiny",engine="0"} 0.0\n' in text
    assert text.endswith("extra_metric 1.0\n")


def test_a_completion_has_every_field(http: httpx.Client) -> None:
    answer = complete(http, prompt="hello", max_tokens=3, ignore_eos=True, request_id="me", temperature=0)
    choice = answer["choices"][0]
    assert (answer["id"], answer["object"], answer["model"]) == ("cmpl-me", "text_completion", "tiny")
    assert {"system_fingerprint", "service_tier", "created", "kv_transfer_params"} <= answer.keys()
    assert {"logprobs", "stop_reason", "token_ids", "prompt_logprobs", "prompt_token_ids"} <= choice.keys()
    assert (choice["index"], choice["finish_reason"]) == (0, "length")
    assert answer["usage"] == {"prompt_tokens": 6, "completion_tokens": 3, "total_tokens": 9}


def test_the_header_names_the_request(http: httpx.Client) -> None:
    body = {"prompt": "a", "max_tokens": 1, "request_id": "body"}
    answer = http.post("/v1/completions", json=body, headers={"X-Request-Id": "header"})
    assert answer.json()["id"] == "cmpl-header"
    assert "x-request-id" not in answer.headers


def test_null_means_default_and_unknown_fields_pass(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    nothing = dict.fromkeys(("max_tokens", "stop", "temperature", "n", "stream_options", "logprobs", "seed", "model"))
    answer = complete(http, prompt="a", ignore_eos=True, frobnicate=1, best_of=1, user="me", tool="x", **nothing)
    assert answer["usage"]["completion_tokens"] == 16
    assert "'frobnicate', 'tool'" in caplog.text


def test_choices_are_numbered_prompt_by_prompt(http: httpx.Client) -> None:
    sampling = {"max_tokens": 5, "ignore_eos": True, "seed": 7}
    answer = complete(http, prompt=["ab", "xyz"], n=2, return_token_ids=True, **sampling)
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    # each prompt counts once, each choice in full; every prompt begins with BOS
    assert answer["usage"] == {"prompt_tokens": 3 + 4, "completion_tokens": 20, "total_tokens": 27}
    for i, prompt in enumerate(["ab", "xyz"]):
        for j in range(2):  # child j of a seeded request draws as a request with seed + j does
            alone = complete(http, prompt=prompt, return_token_ids=True, **{**sampling, "seed": 7 + j})
            assert choices[2 * i + j]["token_ids"] == alone["choices"][0]["token_ids"]
            assert choices[2 * i + j]["prompt_token_ids"] == alone["choices"][0]["prompt_token_ids"]


@pytest.mark.parametrize(
    ("prompt", "lengths"),
    [([49, 50], [2]), (["1", "2"], [2, 2]), ([[49], [50, 51]], [1, 2]), ("12", [3])],
)
def test_forms_of_a_prompt(http: httpx.Client, prompt: Any, lengths: list[int]) -> None:
    answer = complete(http, prompt=prompt, max_tokens=1, return_token_ids=True)
    assert [len(choice["prompt_token_ids"]) for choice in answer["choices"]] == lengths


@pytest.mark.parametrize("prompt", ["hi you", [104, 105, 32, 121, 111, 117]])
def test_echo_shows_the_prompt_once(http: httpx.Client, prompt: Any) -> None:
    bare = complete(http, prompt=prompt, max_tokens=4, temperature=0)["choices"][0]["text"]
    echoed = complete(http, prompt=prompt, max_tokens=4, temperature=0, echo=True)["choices"][0]["text"]
    assert echoed == "hi you" + bare


def test_echo_alone_makes_no_token(http: httpx.Client) -> None:
    answer = complete(http, prompt=[104, 105], max_tokens=0, echo=True, logprobs=0, return_token_ids=True)
    choice = answer["choices"][0]
    assert (choice["text"], choice["token_ids"], choice["finish_reason"]) == ("hi", [], "length")
    assert choice["logprobs"]["tokens"] == ["h", "i"]
    assert answer["usage"] == {"prompt_tokens": 2, "completion_tokens": 0, "total_tokens": 2}


@pytest.mark.parametrize("num_top", [0, 1, 5])
def test_logprobs_of_a_completion(http: httpx.Client, num_top: int) -> None:
    body = {"prompt": [104, 105], "max_tokens": 4, "ignore_eos": True, "seed": 1, "logprobs": num_top}
    columns = complete(http, return_tokens_as_token_ids=True, **body)["choices"][0]["logprobs"]
    assert {len(column) for column in columns.values()} == {4}
    offset = 0
    names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    for token, value, top, at in zip(*map(columns.__getitem__, names), strict=True):
        assert at == offset
        offset += len(token)
        assert next(iter(top.items())) == (token, value)
        assert num_top <= len(top) <= num_top + 1
        assert sorted(top.values(), reverse=True)[0] >= value


def test_logprobs_with_echo_cover_the_prompt(http: httpx.Client) -> None:
    ids = [104, 101, 108, 108, 111]
    body = {"prompt": [ids], "max_tokens": 1, "logprobs": 1, "echo": True, "temperature": 0}
    columns = complete(http, return_tokens_as_token_ids=True, **body)["choices"][0]["logprobs"]
    assert columns["tokens"][:5] == [f"token_id:{i}" for i in ids]
    assert len(columns["token_logprobs"]) == 6
    assert columns["token_logprobs"][0] is columns["top_logprobs"][0] is None
    assert all(value < 0 for value in columns["token_logprobs"][1:])
    # the sampled token is greedy: its value is exactly the largest of its alternatives
    assert columns["token_logprobs"][-1] == max(columns["top_logprobs"][-1].values())


def test_filtered_tokens_keep_json_legal(http: httpx.Client) -> None:
    complete(http, prompt="a", max_tokens=3, echo=True, logprobs=3, temperature=1, top_k=1)  # parse_constant fails


def test_prompt_logprobs(http: httpx.Client) -> None:
    choice = complete(http, prompt=[104, 105], max_tokens=1, prompt_logprobs=2)["choices"][0]
    first, second = choice["prompt_logprobs"]
    assert first is None
    assert second["105"].keys() == {"logprob", "rank", "decoded_token"}
    assert 2 <= len(second) <= 3


def test_stop_string_and_stop_token(http: httpx.Client) -> None:
    body = {"prompt": "q", "max_tokens": 40, "seed": 3, "ignore_eos": True, "return_token_ids": True}
    full = complete(http, **body)["choices"][0]
    by_id = complete(http, stop_token_ids=[full["token_ids"][5]], **body)["choices"][0]
    assert (by_id["finish_reason"], by_id["stop_reason"]) == ("stop", full["token_ids"][5])
    needle = full["text"][10:12]
    by_text = complete(http, stop=needle, **body)["choices"][0]
    assert (by_text["finish_reason"], by_text["stop_reason"]) == ("stop", needle)
    assert by_text["text"] == full["text"][: full["text"].index(needle)]


def test_a_chat(http: httpx.Client) -> None:
    answer = chat(http, max_tokens=99, max_completion_tokens=3, ignore_eos=True, request_id="me")
    assert (answer["id"], answer["object"]) == ("chatcmpl-me", "chat.completion")
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant"
    assert isinstance(choice["message"]["content"], str)
    assert answer["usage"]["completion_tokens"] == 3


def test_a_chat_without_a_limit_fills_the_context(http: httpx.Client) -> None:
    answer = chat(http, ignore_eos=True)
    assert answer["usage"]["total_tokens"] == 256
    assert answer["choices"][0]["finish_reason"] == "length"


def test_text_parts_are_a_text(http: httpx.Client) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    same = {"max_tokens": 2, "return_token_ids": True}
    assert chat(http, messages=parts, **same)["prompt_token_ids"] == chat(http, **same)["prompt_token_ids"]


def test_chat_echo_and_n(http: httpx.Client) -> None:
    answer = chat(http, echo=True, n=2, max_tokens=2, seed=1)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    assert all(choice["message"]["content"].startswith("hi") for choice in answer["choices"])


@pytest.mark.parametrize("num_top", [0, 1, 5])
def test_logprobs_of_a_chat(http: httpx.Client, num_top: int) -> None:
    answer = chat(http, logprobs=True, top_logprobs=num_top, max_tokens=4, seed=5, ignore_eos=True)
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for entry in content:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        values = [top["logprob"] for top in entry["top_logprobs"]]
        assert len(values) == num_top
        assert values == sorted(values, reverse=True)
        assert all(value <= 0 for value in values)


def test_tokens_there_and_back(http: httpx.Client) -> None:
    body = {"prompt": "héllo", "add_special_tokens": False, "return_token_strs": True}
    there = http.post("/tokenize", json=body).json()
    assert there["count"] == len(there["tokens"]) == len(there["token_strs"]) == 6
    assert http.post("/detokenize", json={"tokens": there["tokens"]}).json() == {"prompt": "héllo"}
    messages = [{"role": "user", "content": "hi"}]
    rendered = http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    assert rendered == chat(http, max_tokens=1, return_token_ids=True)["prompt_token_ids"]


def test_defaults_of_the_checkpoint_fill_what_is_not_set() -> None:
    with served() as (http, client):
        client.default_sampling = {"temperature": 0.0, "unknown": 1}
        texts = {complete(http, prompt="d", max_tokens=8)["choices"][0]["text"] for _ in range(3)}
        assert len(texts) == 1
        hot = {complete(http, prompt="d", max_tokens=8, temperature=2.0)["choices"][0]["text"] for _ in range(3)}
        assert len(hot) > 1


def test_the_id_comes_back_in_a_header_on_request() -> None:
    config = ServerConfig(port=0, uvicorn_log_level="critical", enable_request_id_headers=True)
    with served(config) as (http, _):
        answer = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1, "request_id": "r1"})
    assert answer.headers["x-request-id"] == "r1"


def test_the_same_id_twice_at_once_does_not_mix(http: httpx.Client) -> None:
    def ask(prompt: str) -> httpx.Request:
        body = {"prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "request_id": "twin"}
        return http.build_request("POST", "/v1/completions", json=body)

    alone = {p: http.send(ask(p)).json()["choices"][0]["text"] for p in ("one", "two")}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda p: (p, http.send(ask(p))), ("one", "two")))
    for prompt, answer in answers:
        assert answer.status_code in (200, 400)
        if answer.status_code == 200:
            assert answer.json()["choices"][0]["text"] == alone[prompt]
    assert http.get("/health").status_code == 200
