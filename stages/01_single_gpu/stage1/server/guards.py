"""What every request must pass before it is routed: header limits and the API key.

Pure ASGI, so that nothing is rebuilt from headers that a client controls. Decisions rest on the path that routing
itself uses.

vLLM: ``AuthenticationMiddleware`` in ``vllm/entrypoints/openai/api_server.py``; the header limit is ours.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from stage1.server.errors import ApiError, error_response

MAX_HEADERS = 256


class HeaderLimit:
    """Refuses requests with more than ``MAX_HEADERS`` headers. Their size is limited by h11."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or answer 431."""
        if scope["type"] == "http" and len(scope["headers"]) > MAX_HEADERS:
            error = ApiError(f"{len(scope['headers'])} headers; at most {MAX_HEADERS} are read", status=431)
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class ApiKeyGuard:
    """Asks for ``Authorization: Bearer <key>`` on every path under ``/v1``."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on or answer 401."""
        if self._is_guarded(scope) and not self._knows(scope):
            await JSONResponse({"error": "Unauthorized"}, status_code=401)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    @staticmethod
    def _is_guarded(scope: Scope) -> bool:
        """The router strips ``root_path``, so the path counts with it and without."""
        if scope["type"] != "http" or scope["method"] == "OPTIONS":
            return False
        path: str = scope["path"]
        return path.startswith("/v1") or path.removeprefix(scope.get("root_path", "")).startswith("/v1")

    def _knows(self, scope: Scope) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        # Every key is compared, in constant time: how long it takes tells nothing about which one nearly fits.
        matches = [secrets.compare_digest(token.strip(), key) for key in self._keys]
        return scheme.lower() == b"bearer" and any(matches)
