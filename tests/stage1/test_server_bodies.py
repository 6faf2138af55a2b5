"""Hostile request bodies are refused at once, before they become objects, and nobody else waits for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psutil
import pytest

from stage1.build import CONFIGS
from stage1.config import Settings
from stage1.server.config import ServerConfig
from stage1.server.serve import serve_in_thread
from stage1.serving import start_client

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32", "max_num_seqs": 2}
DEFAULTS = ServerConfig(port=0, uvicorn_log_level="critical", disable_uvicorn_access_log=True)
MILLION = 10**6
MIB = 1 << 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    client = start_client(Settings.from_keywords(CONFIGS, TINY))
    try:
        with serve_in_thread(client, config=DEFAULTS) as url:
            yield url
    finally:
        client.shutdown()


def bias(num_entries: int) -> bytes:
    entries = ",".join(f'"{i}":1' for i in range(num_entries))
    return f'{{"prompt":"a","logit_bias":{{{entries}}}}}'.encode()


def encode(**body: Any) -> bytes:
    return json.dumps({"prompt": "a", "max_tokens": 1} | body, separators=(",", ":")).encode()


class Watch:
    """While it runs: the most memory that the process had above the beginning, and the slowest ``/health``."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._memory, self._health)]
        self.growth = 0
        self.slowest = 0.0

    def __enter__(self) -> Watch:
        self._began = self._process.memory_info().rss
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _memory(self) -> None:
        while not self._stop.wait(0.002):
            self.growth = max(self.growth, self._process.memory_info().rss - self._began)

    def _health(self) -> None:
        with httpx.Client(base_url=self._url, verify=False, timeout=30) as http:
            while not self._stop.wait(0.01):
                began = time.perf_counter()
                assert http.get("/health").status_code == 200
                self.slowest = max(self.slowest, time.perf_counter() - began)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "stop strings": lambda: encode(stop=["s"] * MILLION),
    "bad words": lambda: encode(bad_words=["s"] * MILLION),
    "logit_bias": lambda: bias(MILLION),
    "one-token prompts": lambda: encode(prompt=[[1]] * MILLION),
    "ids": lambda: encode(prompt=[1] * 5 * MILLION),
    "empty lists": lambda: encode(metadata=[[]] * MILLION),
    "objects": lambda: encode(metadata=[{}] * MILLION),
    "depth": lambda: b'{"prompt":' + b"[" * MILLION + b"]" * MILLION + b"}",
    "text": lambda: encode(prompt="a" * 40 * MILLION),
    # within every limit of the body, so the fields' own limits must hold
    "nearly too many ids": lambda: encode(prompt=[1] * 299_000),
    "nearly too many prompts": lambda: encode(prompt=[[1]] * 149_000),
    "nearly too much bias": lambda: bias(149_000),
    "nearly too long a text": lambda: encode(prompt="a" * (8 * MIB - 100)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_body_costs_little(url: str, kind: str) -> None:
    """Refused within a second and 50 MB, with an error that is short; ``/health`` answers meanwhile."""
    body = HOSTILE[kind]()
    with Watch(url) as watch:
        began = time.perf_counter()
        headers = {"Content-Type": "application/json"}
        answer = httpx.post(f"{url}/v1/completions", content=body, headers=headers, verify=False, timeout=60)
        took = time.perf_counter() - began
    assert answer.status_code == (400 if kind.startswith("nearly") else 413)
    assert len(answer.text) < 500
    assert took < 1
    assert watch.growth < 50 * MIB
    assert watch.slowest < 1


def test_the_limit_on_values_is_exact_and_can_be_raised() -> None:
    """Commas, colons and opening brackets count; the message names limit and flag."""

    def ask(limit: int) -> httpx.Response:
        config = ServerConfig(port=0, uvicorn_log_level="critical", max_body_values=limit)
        with serve_in_thread(client, config=config) as url:
            body = {"prompt": "a,[{b", "max_tokens": 2}
            return httpx.post(f"{url}/v1/completions", json=body, verify=False, timeout=30)

    client = start_client(Settings.from_keywords(CONFIGS, TINY))
    try:
        assert (
            ask(8).status_code == 200
        )  # one, {, two colons, the comma between the fields, and those three in the text
        refused = ask(7)
    finally:
        client.shutdown()
    assert refused.status_code == 413
    assert "up to 8 values; the limit is 7: send less or raise --max-body-values" in refused.json()["error"]["message"]


def test_the_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_body_values is 0"):
        ServerConfig(max_body_values=0)
