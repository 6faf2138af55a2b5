"""``POST /reset_prefix_cache``: forget what is cached, as benchmarks ask for between two runs.

Owns the route. vLLM: ``vllm/entrypoints/openai/api_server.py`` (``reset_prefix_cache``).
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse


def reset_router() -> APIRouter:
    """The route; it asks the app's own engine."""
    router = APIRouter()

    @router.post("/reset_prefix_cache")
    async def reset_prefix_cache(request: Request) -> JSONResponse:
        """200 and ``{"reset": true}``; 409 while a request holds a block, and nothing is forgotten then."""
        done = await request.app.state.context.client.call("reset_prefix_cache")
        return JSONResponse({"reset": done}, 200 if done else 409)

    return router
