"""API keys: who needs one, and that there is no way around it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.app import create_app
from stage1.server.config import ServerConfig
from stage1.server.guards import ApiKeyGuard
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client
from stage1.text_client import TextClient

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32", "max_num_seqs": 4}
# Plain connections: loading certificates for each would take most of the time.
get = partial(httpx.get, verify=False, timeout=30)
post = partial(httpx.post, verify=False, timeout=30)


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


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    config = ServerConfig(port=0, uvicorn_log_level="critical", api_key="first, sécond")
    with served(config) as url:
        yield url


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        (b"Bearer first", 200),
        ("Bearer sécond".encode(), 200),
        (b"bearer first", 200),
        (b"Bearer firs", 401),
        (b"Bearer first, s", 401),
        (b"Bearer", 401),
        (b"Basic first", 401),
        (b"first", 401),
        (b"Bearer \xff\xfe", 401),
    ],
)
def test_keys(guarded: str, header: bytes | None, status: int) -> None:
    answer = get(f"{guarded}/v1/models", headers=[] if header is None else [(b"Authorization", header)])
    assert answer.status_code == status
    if status == 401:
        assert answer.json() == {"error": "Unauthorized"}


def test_only_v1_needs_a_key(guarded: str) -> None:
    for path in ("/health", "/", "/status", "/metrics"):
        assert get(guarded + path).status_code == 200
    assert httpx.options(f"{guarded}/v1/models").status_code == 405  # past the guard; there is no such route


@pytest.mark.parametrize(
    "line",
    ["/v1/models", "//v1/models", "/v1//models", "/V1/models", "/v1/%6dodels", "/%761/models", "/health/../v1/models"],
)
@pytest.mark.parametrize("host", ["h", "h/health?", "h?x", "h#"])
def test_no_way_around_the_key(guarded: str, line: str, host: str) -> None:
    answer = raw(guarded, f"GET {line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    assert answer.split(b" ")[1] in (b"400", b"401", b"404")


@pytest.mark.parametrize(
    ("path", "root", "passes"),
    [("/v1/models", "", False), ("/api/v1/models", "/api", False), ("/v1/models", "/v1", False), ("/health", "", True)],
)
def test_the_guard_reads_the_path_that_is_routed(path: str, root: str, passes: bool) -> None:
    seen: list[Any] = []

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        seen.append("inner")

    async def send(message: Any) -> None:
        seen.append(message.get("status"))

    async def receive() -> Any:
        raise AssertionError

    headers = [(b"host", b"h/health?")]
    scope = {"type": "http", "method": "GET", "path": path, "root_path": root, "headers": headers}
    asyncio.run(ApiKeyGuard(inner, ["k"])(scope, receive, send))
    assert ("inner" in seen) is passes
    assert (401 in seen) is not passes


def test_the_key_of_the_environment_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "env-key")
    client = make_client()

    async def ask(headers: dict[str, str]) -> int:
        transport = httpx.ASGITransport(create_app(client))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return (await http.get("/v1/models", headers=headers)).status_code

    assert asyncio.run(ask({})) == 401
    assert asyncio.run(ask({"Authorization": "Bearer env-key"})) == 200
    client.shutdown()
