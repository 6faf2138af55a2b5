"""The server as an ASGI application: routes, guards and error shapes over one client.

Owns how these are put together. It is the only server until stage 5: later stages hand in their own client, routers
and collectors.

vLLM: ``build_app`` in ``vllm/entrypoints/openai/api_server.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI

from stage1.environment import api_keys
from stage1.server.chat import chat_router
from stage1.server.completions import completions_router
from stage1.server.config import ServerConfig
from stage1.server.context import Collector, Context
from stage1.server.errors import install_handlers
from stage1.server.guards import ApiKeyGuard, HeaderLimit
from stage1.server.info import info_router
from stage1.server.page_route import page_router
from stage1.server.tokens import tokens_router

if TYPE_CHECKING:
    from stage1.text_client import TextClient


def create_app(
    client: TextClient,
    routers: Sequence[APIRouter] = (),
    collectors: Sequence[Collector] = (),
    *,
    config: ServerConfig = ServerConfig(),
    parts: Mapping[str, str] | None = None,
) -> FastAPI:
    """The application over ``client``, which the caller starts and shuts down.

    ``routers`` add routes and win over the built-in ones of the same path; ``collectors`` add to ``/metrics``;
    ``parts`` tells the page whose code runs: name of a replaceable part → "yours" or "reference".
    """
    context = Context(client, config, tuple(collectors), dict(parts or {}))
    app = FastAPI(title="Sixfold", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.context = context
    for router in routers:
        app.include_router(router)
    for make_router in (info_router, completions_router, chat_router, tokens_router):
        app.include_router(make_router(context))
    app.include_router(page_router())
    install_handlers(app)
    if keys := configured_keys(config):
        app.add_middleware(ApiKeyGuard, keys=keys)
    app.add_middleware(HeaderLimit)  # the last one added is the first one met
    return app


def configured_keys(config: ServerConfig) -> tuple[str, ...]:
    """The keys of ``--api-key`` and of the environment."""
    own = (key.strip() for key in (config.api_key or "").split(","))
    return (*(key for key in own if key), *api_keys())
