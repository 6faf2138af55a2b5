"""Streams: framing, what chunks add up to, errors half-way, and clients that leave."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import httpx
import pytest

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.disconnect import ClientGoneError, until_disconnect
from stage1.server.serve import serve_in_thread
from stage1.server.streaming import EventStream
from stage1.serving import start_client

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 2048, "dtype": "float32", "max_num_seqs": 2}
QUIET = ServerConfig(port=0, uvicorn_log_level="critical", disable_uvicorn_access_log=True)


def events(raw: bytes) -> list[Any]:
    """Parse a stream strictly: every event is one ``data: `` line and an empty one, and ``[DONE]`` ends it, once."""
    pieces = raw.split(b"\n\n")
    assert pieces.pop() == b""
    assert all(piece.startswith(b"data: ") and b"\n" not in piece for piece in pieces)
    payloads = [piece.removeprefix(b"data: ") for piece in pieces]
    assert payloads.pop() == b"[DONE]"
    return [json.loads(payload, parse_constant=pytest.fail) for payload in payloads]


# --- the tiny model ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    client = start_client(Settings.from_keywords(CONFIGS, TINY))
    try:
        with (
            serve_in_thread(client, config=QUIET) as url,
            httpx.Client(base_url=url, timeout=60, verify=False) as http,
        ):
            yield http
    finally:
        client.shutdown()


def post(http: httpx.Client, path: str, **body: Any) -> httpx.Response:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


def test_chunks_add_up_to_the_answer(http: httpx.Client) -> None:
    body = {
        "prompt": ["ab", "xyz"],
        "n": 2,
        "max_tokens": 6,
        "ignore_eos": True,
        "seed": 4,
        "echo": True,
        "logprobs": 2,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }
    whole = post(http, "/v1/completions", **body).json()
    answer = post(http, "/v1/completions", **body, stream=True, stream_options={"include_usage": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, last = events(answer.content)
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    for choice in whole["choices"]:
        pieces = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [token for piece in pieces for token in piece["token_ids"]] == choice["token_ids"]
        assert pieces[0]["prompt_token_ids"] == choice["prompt_token_ids"]
        for column, values in choice["logprobs"].items():
            joined = [entry for piece in pieces for entry in piece["logprobs"][column]]
            if column == "top_logprobs":
                joined, values = ([top and set(top) for top in tops] for tops in (joined, values))
            assert joined == (pytest.approx(values) if column == "token_logprobs" else values)
        assert [p["finish_reason"] for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
        assert pieces[0].keys() == choice.keys() - {"prompt_logprobs"}


def test_chat_chunks_add_up_to_the_answer(http: httpx.Client) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "n": 2, "max_tokens": 6, "seed": 4, "ignore_eos": True}
    whole = post(http, "/v1/chat/completions", **body, logprobs=True, top_logprobs=1).json()
    asked = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 1}
    *chunks, last = events(post(http, "/v1/chat/completions", **body, **asked).content)
    assert last["usage"] == whole["usage"]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for choice in whole["choices"]:
        pieces = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == choice["index"]]
        assert pieces[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(piece["delta"]["content"] for piece in pieces) == choice["message"]["content"]
        content = [entry for piece in pieces[1:] for entry in piece["logprobs"]["content"]]
        assert [entry["token"] for entry in content] == [e["token"] for e in choice["logprobs"]["content"]]
        assert [p["finish_reason"] for p in pieces] == [None] * (len(pieces) - 1) + ["length"]


@pytest.mark.parametrize(
    ("options", "reported"),
    [({}, True), (None, False), ({"include_usage": False}, False), ({"include_usage": True}, True)],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_usage_only_on_request(http: httpx.Client, path: str, options: Any, reported: bool) -> None:
    body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "ignore_eos": True}
    chunks = events(post(http, path, **body, stream=True, stream_options=options).content)
    assert [bool(chunk.get("usage")) for chunk in chunks] == [False] * (len(chunks) - 1) + [reported]
    assert [chunk["choices"] == [] for chunk in chunks] == [False] * (len(chunks) - 1) + [reported]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_continuous_usage_grows(http: httpx.Client, path: str) -> None:
    body = {"prompt": "a", "messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "ignore_eos": True}
    asked = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    chunks = events(post(http, path, **body, **asked).content)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-2:] == [4, 4]
    assert len({chunk["usage"]["prompt_tokens"] for chunk in chunks}) == 1


def test_echo_alone_streams_the_prompt(http: httpx.Client) -> None:
    (chunk,) = events(post(http, "/v1/completions", prompt="hey", max_tokens=0, echo=True, stream=True).content)
    assert chunk["choices"][0]["text"] == "hey"


def test_a_bad_request_is_refused_with_its_status(http: httpx.Client) -> None:
    answer = http.post("/v1/completions", json={"prompt": "a", "stream": True, "temperature": -1})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"


# --- clients that leave ------------------------------------------------------------------------------


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for what another thread is about to do; fail when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def busy(http: httpx.Client) -> tuple[int, int]:
    status = http.get("/status").json()
    return status["num_running"], status["num_waiting"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("prompts", "n"), [(1, 1), (1, 3), (2, 1)])
def test_leaving_ends_the_request(http: httpx.Client, stream: bool, prompts: int, n: int) -> None:
    """With two seats, three choices also leave one in the queue."""
    body = {"prompt": ["a"] * prompts, "n": n, "max_tokens": 2000, "ignore_eos": True, "stream": stream}
    payload = json.dumps(body).encode()
    lines = (
        "POST /v1/completions HTTP/1.1",
        "Host: h",
        "Content-Type: application/json",
        f"Content-Length: {len(payload)}",
    )
    address = (http.base_url.host, http.base_url.port or 0)
    with socket.create_connection(address, timeout=10) as sock:
        sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
        until(lambda: busy(http) == (min(2, prompts * n), max(0, prompts * n - 2)))
        if stream:
            seen = b""
            while b"data: " not in seen:  # the headers may come alone
                seen += (part := sock.recv(65536))
                assert part, seen
    until(lambda: busy(http) == (0, 0), seconds=2)
    assert http.get("/status").json()["kv_usage"] == 0
    post(http, "/v1/completions", prompt="b", max_tokens=1)


def test_work_is_cancelled_when_the_client_leaves() -> None:
    async def scenario() -> str:
        cancelled = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                cancelled.set()

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        with pytest.raises(ClientGoneError):
            await until_disconnect(receive, work())
        return "cancelled" if cancelled.is_set() else "still running"

    assert asyncio.run(scenario()) == "cancelled"


def test_a_server_that_stops_ends_its_streams_in_words() -> None:
    """What uvicorn cancels after its grace still ends properly, and its source is closed."""
    closed: list[bool] = []
    sent: list[dict[str, Any]] = []

    async def source() -> AsyncGenerator[dict[str, Any], None]:
        try:
            yield {"n": 1}
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def stop_it() -> None:
        begun = asyncio.Event()

        async def send(message: Any) -> None:
            sent.append(message)
            if message.get("body"):
                begun.set()

        async def receive() -> Any:
            await asyncio.Event().wait()

        task = asyncio.create_task(EventStream(source())({}, receive, send))
        await begun.wait()
        task.cancel()
        await task

    asyncio.run(stop_it())
    first, last = events(b"".join(message.get("body", b"") for message in sent))
    assert first == {"n": 1}
    assert last["error"]["message"] == "the server was stopped"
    assert [message["more_body"] for message in sent[1:]] == [True, True, False]
    assert closed == [True]
