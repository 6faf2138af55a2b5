"""What the server says of itself: health, models, version, status, metrics.

Owns the small GET routes. HEAD works wherever GET does: several clients probe with it.

vLLM: ``vllm/entrypoints/openai/api_server.py``, metric names of ``vllm/v1/metrics/loggers.py``.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from stage1.interfaces import EngineDeadError
from stage1.records import StepStats
from stage1.server.context import Context


def info_router(context: Context) -> APIRouter:
    """The routes over ``context``."""
    router = APIRouter()
    client = context.client
    probed = ["GET", "HEAD"]

    @router.api_route("/health", methods=probed)
    async def health() -> Response:
        """200 while the engine works, 503 once it has died."""
        return Response(status_code=200 if client.dead is None else 503)

    @router.api_route("/v1/models", methods=probed)
    async def models() -> dict[str, Any]:
        """The one model that is served."""
        return {"object": "list", "data": [model_card(context)]}

    @router.api_route("/version", methods=probed)
    async def show_version() -> dict[str, str]:
        """The version of this distribution."""
        return {"version": _version()}

    @router.api_route("/status", methods=probed)
    async def status() -> dict[str, Any]:
        """Which stage and model run, whose parts are in use, how busy the engine is, and what it need not compute."""
        stats = await _stats(context)
        return {
            "stage": client.stage,
            "model": client.model_name,
            "max_model_len": client.max_model_len,
            "parts": [{"name": name, "source": source} for name, source in context.parts.items()],
            "dead": client.dead,
            "num_running": stats.num_running,
            "num_waiting": stats.num_waiting,
            "kv_usage": stats.kv_usage,
            "prefix_queries": stats.prefix_queries,
            "prefix_hits": stats.prefix_hits,
            "verifications": stats.verifications,
            "drafts": stats.drafts,
            "accepted_per_position": stats.accepted_per_position,
        }

    @router.api_route("/metrics", methods=probed)
    async def metrics() -> PlainTextResponse:
        """The engine's gauges, and what the collectors add, as Prometheus text."""
        texts = [engine_metrics(client.model_name, await _stats(context))]
        texts += [await collect() for collect in context.collectors]
        return PlainTextResponse("".join(texts), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def model_card(context: Context) -> dict[str, Any]:
    """One entry of ``/v1/models``. ``root`` is where a client finds the tokenizer."""
    client = context.client
    return {
        "id": client.model_name,
        "object": "model",
        "created": context.started,
        "owned_by": "sixfold",
        "root": client.root,
        "parent": None,
        "max_model_len": client.max_model_len,
        "permission": [],
    }


def engine_metrics(model_name: str, stats: StepStats) -> str:
    """The metrics that need nothing but ``stats``, in Prometheus text format 0.0.4."""
    escaped = model_name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    accepted = sum(stats.accepted_per_position)
    names = f'model_name="{escaped}",engine="0"'
    labels = f"{{{names}}}"
    rows = (
        ("vllm:num_requests_running", "gauge", "Requests in the running batch.", stats.num_running),
        ("vllm:num_requests_waiting", "gauge", "Requests that wait.", stats.num_waiting),
        ("vllm:kv_cache_usage_perc", "gauge", "Share of the KV blocks in use, 0 to 1.", stats.kv_usage),
        ("vllm:num_preemptions_total", "counter", "Preemptions since the start.", stats.preemptions),
        (
            "vllm:prefix_cache_queries_total",
            "counter",
            "Prompt tokens looked up in the prefix cache.",
            stats.prefix_queries,
        ),
        ("vllm:prefix_cache_hits_total", "counter", "Prompt tokens found in the cache.", stats.prefix_hits),
        (
            "vllm:spec_decode_num_drafts_total",
            "counter",
            "Verifications, one a request and step.",
            stats.verifications,
        ),
        ("vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts that were verified.", stats.drafts),
        ("vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts that stayed.", accepted),
    )
    text = "".join(
        f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name}{labels} {float(value)}\n"
        for name, kind, text, value in rows
    )
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    lines = [
        f'{name}{{{names},position="{position}"}} {float(count)}\n'
        for position, count in enumerate(stats.accepted_per_position)
    ]
    return text + f"# HELP {name} Drafts that stayed, by their place.\n# TYPE {name} counter\n" + "".join(lines)


async def _stats(context: Context) -> StepStats:
    """The engine's statistics; those of an engine at rest when it has died."""
    try:
        return await context.client.stats()
    except EngineDeadError:
        return StepStats()


def _version() -> str:
    try:
        return version("sixfold")
    except PackageNotFoundError:
        return "0+source"  # run from a checkout that is not installed
