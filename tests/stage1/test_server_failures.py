"""Failures on the way of a request, from an engine that plays a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from stage1.interfaces import EngineDeadError
from stage1.outputs import CompletionOutput, RequestOutput
from stage1.params import SamplingParams
from stage1.records import StepStats
from stage1.server.app import create_app
from stage1.server.streaming import frame


def events(raw: bytes) -> list[Any]:
    """Parse a stream strictly: every event is one ``data: `` line and an empty one, and ``[DONE]`` ends it, once."""
    pieces = raw.split(b"\n\n")
    assert pieces.pop() == b""
    assert all(piece.startswith(b"data: ") and b"\n" not in piece for piece in pieces)
    payloads = [piece.removeprefix(b"data: ") for piece in pieces]
    assert payloads.pop() == b"[DONE]"
    return [json.loads(payload, parse_constant=pytest.fail) for payload in payloads]


# --- errors on the way, from a scripted engine -------------------------------------------------------


class ScriptedClient:
    """Plays ``script`` to every request: texts are tokens, exceptions are raised, ``error:…`` fails the request."""

    model_name, root, max_model_len, max_logprobs, stage = "scripted", "scripted", 100, 20, 1
    default_sampling: dict[str, Any] = {}
    inputs = SimpleNamespace(render_chat=lambda messages, **options: ("hi", [1]))
    dead: str | None = None

    def __init__(self, script: list[str | Exception]) -> None:
        self.tokenizer = SimpleNamespace(decode=lambda ids, **options: "?")
        self.script = script
        self.closed: list[str] = []

    async def generate(
        self, prompt: Any, params: SamplingParams, *, request_id: str, **options: Any
    ) -> AsyncIterator[Any]:
        text = ""
        try:
            for i, item in enumerate(self.script):
                if isinstance(item, Exception):
                    raise item
                ends = item.startswith("error:")
                reason = "error" if ends else "length" if i == len(self.script) - 1 else None
                piece = CompletionOutput(0, "" if ends else item, [] if ends else [i], finish_reason=reason)
                piece.error = item if ends else None
                text += piece.text
                if params.output_kind.name == "DELTA" or reason:
                    piece.text = piece.text if params.output_kind.name == "DELTA" else text
                    yield RequestOutput(request_id, None, [1], [piece], finished=reason is not None)
                await asyncio.sleep(0)
        finally:
            self.closed.append(request_id)

    async def stats(self) -> StepStats:
        return StepStats()


def ask(script: list[str | Exception], path: str, **body: Any) -> tuple[httpx.Response, ScriptedClient]:
    client: Any = ScriptedClient(script)

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(client), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            messages = [{"role": "user", "content": "hi"}]
            return await http.post(path, json={"prompt": "a", "messages": messages, "max_tokens": 5, **body})

    return asyncio.run(send()), client


FAULTS: dict[str, tuple[str | Exception, int, str]] = {
    "failed": ("error: not finite", 500, "not finite"),
    "dead": (EngineDeadError("out of memory"), 500, "out of memory"),
    "refused": (ValueError("request id 'x' is in use"), 400, "in use"),
    "bug": (ZeroDivisionError("division by zero"), 500, "division by zero"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_before_the_first_token_has_its_status(path: str, stream: bool, fault: str) -> None:
    what, status, words = FAULTS[fault]
    answer, client = ask([what], path, stream=stream)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], words in error["message"]) == (status, True)
    assert len(client.closed) == 1


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_an_error_after_the_third_token_is_an_event(path: str, fault: str) -> None:
    what, status, words = FAULTS[fault]
    answer, client = ask(["a", "b", "c", what], path, stream=True, stream_options={})
    assert answer.status_code == 200
    *chunks, last = events(answer.content)
    said = [c["choices"][0].get("text", c["choices"][0].get("delta", {}).get("content")) for c in chunks]
    assert "".join(said) == "abc"
    assert last.keys() == {"error"}
    assert (last["error"]["code"], words in last["error"]["message"]) == (status, True)
    assert len(client.closed) == 1
    answer, _ = ask(["a", "b", "c", what], path, stream=False)
    assert answer.status_code == status


def test_one_failing_prompt_ends_its_siblings() -> None:
    answer, client = ask(["a", "error: x"], "/v1/completions", prompt=["p", "q", "r"])
    assert answer.status_code == 500
    assert len(client.closed) == 3


TRICKY = 'line\nline\r\n\ndata: [DONE]\n\n\u2028\u2029\x85 é 🦙 "\\'


def test_text_cannot_break_the_framing() -> None:
    answer, _ = ask([TRICKY, TRICKY], "/v1/completions", stream=True)
    assert answer.content.isascii()
    assert [chunk["choices"][0]["text"] for chunk in events(answer.content)] == [TRICKY, TRICKY]
    assert len(frame({"text": TRICKY}).decode().splitlines()) == 2


def test_health_of_a_dead_engine() -> None:
    client: Any = ScriptedClient([])
    client.dead = "out of memory"

    async def ask_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(client))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return [await http.get(path) for path in ("/health", "/status")]

    health, status = asyncio.run(ask_all())
    assert (health.status_code, health.content) == (503, b"")
    assert status.json()["dead"] == "out of memory"
