"""Stage 1's demo server: the wiring of client, live feed and HTTP application.

Owns which engine the server runs. Later stages call the same functions with their own ``build``.

vLLM: ``vllm/entrypoints/cli/serve.py``, ``build_async_engine_client`` in ``vllm/entrypoints/openai/api_server.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter

from stage1.build import CONFIGS, SUPPORTED, build
from stage1.client import InProcessClient
from stage1.config import Settings
from stage1.core import EngineCore
from stage1.frontend import load_processors
from stage1.params import SamplingParams
from stage1.server.config import ServerConfig
from stage1.server.live import live_router
from stage1.server.serve import serve as serve_http
from stage1.text_client import TextClient
from stage1.trace.sinks import LiveFeed, Sink

SERVER_CONFIGS = (*CONFIGS, ServerConfig)


def start_client(
    settings: Settings,
    sinks: Sequence[Sink] = (),
    *,
    parts: Any = None,
    build_core: Callable[..., EngineCore] = build,
    supported: frozenset[str] = SUPPORTED,
    check: Callable[[SamplingParams], None] = lambda params: None,
    stage: int = 1,
) -> TextClient:
    """Load the model and start computing in a thread. ``parts`` are replacements, the stage's ``Parts``.

    Raises:
        ValueError: the model cannot be loaded.
    """
    inputs, outputs = load_processors(settings, supported, check)
    core = build_core(settings, **({} if parts is None else {"parts": parts}), sinks=sinks)
    return TextClient(InProcessClient(core), inputs, outputs, stage)


def serve(
    settings: Settings,
    *,
    owners: Mapping[str, str] | None = None,
    routers: Sequence[APIRouter] = (),
    **start: Any,
) -> None:
    """Serve the engine of ``settings`` until a signal ends it; the page shows its steps live.

    ``owners`` says whose each part is, for the page: part → "yours" or "reference". ``routers`` add a stage's routes.
    ``start`` goes to ``start_client``.
    """
    feed = LiveFeed()
    routes = (live_router(feed), *routers)
    serve_http(settings, lambda: start_client(settings, (feed,), **start), routes, parts=owners)
