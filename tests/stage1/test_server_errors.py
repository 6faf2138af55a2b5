"""What is wrong is said clearly, with the right status, and harms nobody else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import httpx
import pytest

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.serve import bind, serve_in_thread
from stage1.serving import start_client
from stage1.text_client import TextClient

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32", "max_num_seqs": 4}
LIMITS = ServerConfig(
    port=0,
    uvicorn_log_level="critical",
    disable_uvicorn_access_log=True,
    max_body_mib=1,
    max_choices=100,
    body_timeout=0.3,
)
# Plain connections: loading certificates for each would take most of the time.
get = partial(httpx.get, verify=False, timeout=30)
post = partial(httpx.post, verify=False, timeout=30)
USER = [{"role": "user", "content": "hi"}]


def make_client() -> TextClient:
    return start_client(Settings.from_keywords(CONFIGS, TINY))


@contextmanager
def served(config: ServerConfig) -> Iterator[str]:
    client = make_client()
    try:
        with serve_in_thread(client, config=config) as url:
            yield url
    finally:
        client.shutdown()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(LIMITS) as url:
        yield url


def check_error(answer: httpx.Response, status: int, param: str | None = None) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert error["param"] == param
    assert error["type"] == {400: "BadRequestError", 404: "NotFoundError"}.get(status, error["type"])
    assert isinstance(error["message"], str)
    return error["message"]


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"n": "two"}, "n"),
        ({"n": True}, "n"),
        ({"n": 0}, "n"),
        ({"n": 10**9}, "n"),
        ({"n": 2, "temperature": 0}, "n"),
        ({"prompt": ["a"] * 101}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 2.0}, "max_tokens"),
        ({"max_tokens": 10**18}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"logprobs": 10**9}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"stop": [""]}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": ["s"] * 10**5}, "stop"),
        ({"bad_words": [""]}, "bad_words"),
        ({"logit_bias": {"AI": 1}}, "logit_bias"),
        ({"logit_bias": {"49152": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 1e9}}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"stop_token_ids": [49152], "min_tokens": 1}, "stop_token_ids"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
        ({"priority": 1}, "priority"),
        ({"cache_salt": "s"}, "cache_salt"),
        ({"kv_transfer_params": {}}, "kv_transfer_params"),
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}}, "structured_outputs"),
        ({"response_format": {"type": "nope"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"request_id": "a\nb"}, "request_id"),
    ],
)
def test_bad_completion_fields(url: str, wrong: dict[str, Any], param: str) -> None:
    message = check_error(post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 2, **wrong}), 400, param)
    assert param in message or param == "n"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"content": "hi"}]}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"max_completion_tokens": 0}, "max_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 10**9}, "logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"chat_template": "{{ ''.__class__ }}"}, "chat_template"),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "add_generation_prompt"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
    ],
)
def test_bad_chat_fields(url: str, wrong: dict[str, Any], param: str) -> None:
    check_error(post(f"{url}/v1/chat/completions", json={"messages": USER, "max_tokens": 2, **wrong}), 400, param)


def test_what_is_harmless_is_no_error(url: str) -> None:
    body = {"messages": USER, "max_tokens": 1, "tools": [], "tool_choice": "none", "response_format": {"type": "text"}}
    assert post(f"{url}/v1/chat/completions", json=body).status_code == 200


def test_the_length_rule_names_three_numbers(url: str) -> None:
    message = check_error(post(f"{url}/v1/completions", json={"prompt": [97] * 60, "max_tokens": 5}), 400, "prompt")
    assert all(number in message for number in ("60", "5", "64"))
    for length, status in ((63, 200), (64, 400), (65, 400), (1000, 400)):
        answer = post(f"{url}/v1/completions", json={"prompt": [97] * length, "max_tokens": 1})
        assert answer.status_code == status


def test_one_bad_prompt_refuses_the_whole_list(url: str) -> None:
    check_error(post(f"{url}/v1/completions", json={"prompt": [[97], [10**6]], "max_tokens": 2}), 400, "prompt")
    assert get(f"{url}/status").json()["num_running"] == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize"])
def test_another_model(url: str, path: str) -> None:
    body = {"model": "gpt-5", "prompt": "a", "messages": USER}
    assert "gpt-5" in check_error(post(f"{url}{path}", json=body), 404, "model")


@pytest.mark.parametrize("path", ["/nope", "/v1/nope", "/v1/models/", "//v1/models", "/page/../app.py", "/page/x.js"])
def test_unknown_routes(url: str, path: str) -> None:
    check_error(get(f"{url}{path}"), 404)


def test_wrong_method(url: str) -> None:
    check_error(get(f"{url}/v1/completions"), 405)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"prompt": "a", "x": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        b'{"prompt": "a", "seed": ' + b"9" * 10_000 + b"}",
    ],
)
def test_bodies_that_are_no_json_object(url: str, body: bytes) -> None:
    answer = post(f"{url}/v1/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert len(answer.json()["error"]["message"]) < 300


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", None])
def test_wrong_content_type(url: str, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    assert "application/json" in check_error(post(f"{url}/v1/completions", content=b"{}", headers=headers), 400)


def test_large_bodies(url: str) -> None:
    headers = {"Content-Type": "application/json"}
    big = b'{"prompt": "' + b"a" * (2 << 20) + b'"}'
    message = check_error(post(f"{url}/v1/completions", content=big, headers=headers), 413)
    assert "1 MiB" in message

    def pieces() -> Iterator[bytes]:  # without a declared length
        for start in range(0, len(big), 1 << 16):
            yield big[start : start + (1 << 16)]

    with suppress(httpx.TransportError):  # the server may close the connection before it has taken everything
        check_error(post(f"{url}/v1/completions", content=pieces(), headers=headers), 413)
    assert get(f"{url}/health").status_code == 200


def raw(url: str, request: bytes) -> bytes:
    """What the server answers to ``request`` before it closes the connection."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.settimeout(10)
        received = b""
        try:
            sock.sendall(request)
            while piece := sock.recv(65536):
                received += piece
        except ConnectionError:
            pass
    return received


def test_a_body_that_does_not_come(url: str) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    assert b" 408 " in raw(url, head).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "headers",
    [b"X-Long: " + b"a" * (1 << 20) + b"\r\n", b"".join(b"h%d: 1\r\n" % i for i in range(10_000)), b"a:b\r\n" * 300],
    ids=["one of 1 MiB", "10,000", "300"],
)
def test_too_many_headers(url: str, headers: bytes) -> None:
    answer = raw(url, b"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + headers + b"\r\n")
    assert answer == b"" or answer.split(b" ")[1][:1] == b"4"
    assert get(f"{url}/health").status_code == 200


# --- the port ----------------------------------------------------------------------------------------


def test_a_port_in_use_is_one_clear_line() -> None:
    with bind(ServerConfig(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit) as error:
            bind(ServerConfig(port=port))
    assert str(port) in str(error.value.code)
    assert "--port" in str(error.value.code)
    assert "\n" not in str(error.value.code)


@pytest.mark.parametrize("wrong", [{"port": -1}, {"port": 70_000}, {"max_body_mib": 0}])
def test_settings_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ServerConfig(**wrong)
