"""``GET /``: the page and its parts, from files beside this module.

Owns which files are served and the policy that keeps the page to itself. Does not know what the page does.

vLLM: no counterpart.
"""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
_HEADERS = {
    # Nothing from outside, nothing inline: text that a model writes cannot become code.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_router() -> APIRouter:
    """``/`` and ``/page/<name>``, read once; only files that exist now are served."""
    router = APIRouter()
    pages = {
        entry.name: Response(
            entry.read_bytes(),
            headers=_HEADERS,
            media_type=f"{_TYPES[entry.name.rpartition('.')[2]]}; charset=utf-8",
        )
        for entry in files("stage1.server").joinpath("page").iterdir()
        if entry.name.rpartition(".")[2] in _TYPES
    }

    async def serve_file(request: Request) -> Response:
        """One file of the page."""
        return pages[request.url.path.rpartition("/")[2] or "index.html"]

    for path in ("/", *(f"/page/{name}" for name in pages)):
        router.add_api_route(path, serve_file, methods=["GET", "HEAD"])
    return router
