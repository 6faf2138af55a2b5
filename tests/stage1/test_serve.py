"""Running the server: the live feed, signals, the port."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest

from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.live import live_router
from stage1.server.serve import bind, serve, serve_in_thread
from stage1.serving import SERVER_CONFIGS, start_client
from stage1.trace.events import RequestAdded
from stage1.trace.sinks import LiveFeed

QUIET = ServerConfig(port=0, uvicorn_log_level="critical", disable_uvicorn_access_log=True)


def events(raw: bytes) -> list[Any]:
    """Parse a stream strictly: every event is one ``data: `` line and an empty one, and ``[DONE]`` ends it, once."""
    pieces = raw.split(b"\n\n")
    assert pieces.pop() == b""
    assert all(piece.startswith(b"data: ") and b"\n" not in piece for piece in pieces)
    payloads = [piece.removeprefix(b"data: ") for piece in pieces]
    assert payloads.pop() == b"[DONE]"
    return [json.loads(payload, parse_constant=pytest.fail) for payload in payloads]


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for what another thread is about to do; fail when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


# --- the live feed, and the end ----------------------------------------------------------------------


@contextmanager
def live_server(feed: LiveFeed) -> Iterator[str]:
    words = {"model": "tiny", "load_format": "dummy", "max_model_len": 64}
    client = start_client(Settings.from_keywords(SERVER_CONFIGS, words))
    try:
        with serve_in_thread(client, [live_router(feed)], config=QUIET) as url:
            yield url
    finally:
        client.shutdown()


def test_the_live_feed_is_streamed_and_ends_with_the_server() -> None:
    feed = LiveFeed(capacity=10)
    feed.write(RequestAdded(0.5, "r1", 3))
    received: list[bytes] = []
    arrived = threading.Event()

    def follow(url: str) -> None:
        with httpx.stream("GET", f"{url}/live", timeout=20) as answer:
            for piece in answer.iter_raw():
                received.append(piece)
                if b'"r2"' in piece:
                    arrived.set()

    with live_server(feed) as url:
        reader = threading.Thread(target=follow, args=(url,))
        reader.start()
        until(lambda: b'"r1"' in b"".join(received))
        feed.write(RequestAdded(0.6, "r2", 4))
        assert arrived.wait(10)
        assert httpx.get(f"{url}/health").status_code == 200
        began = time.monotonic()
    assert time.monotonic() - began < 2  # nobody waits for a stream that has no end
    reader.join(10)
    first, second = events(b"".join(received))
    assert (first["kind"], first["req_id"], second["req_id"]) == ("request_added", "r1", "r2")


SERVE = """
import sys
from stage1.config import Settings
from stage1.server.serve import serve
from stage1.serving import SERVER_CONFIGS, start_client

words = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "port": int(sys.argv[1])}
settings = Settings.from_keywords(SERVER_CONFIGS, words)

def start():
    print("loading", flush=True)
    client = start_client(settings)
    shutdown = client.shutdown
    client.shutdown = lambda: (shutdown(), print("engine down", flush=True))
    return client

serve(settings, start)
"""


def start_server(port: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port)], env=environment, stdout=pipe, stderr=pipe, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with start_server(port) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "loading\n"
        until(lambda: answers(port), seconds=60)
        server.send_signal(number)
        out, err = server.communicate(timeout=20)
    assert server.returncode == 0
    assert out.endswith("engine down\n")
    assert f"http://127.0.0.1:{port}/" in err
    assert "curl http" in err
    assert "Traceback" not in err


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_the_port_is_taken_before_the_model_loads() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings.from_keywords((ServerConfig,), {"port": port})
        with pytest.raises(SystemExit) as error:
            serve(settings, lambda: pytest.fail("the model was loaded"))
    assert str(port) in str(error.value.code)  # a text: Python prints it and exits with 1


def test_small_writes_are_not_held_back() -> None:
    with closing(bind(ServerConfig(port=0))) as sock, socket.create_connection(sock.getsockname()):
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
