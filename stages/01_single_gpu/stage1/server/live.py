"""``GET /live``: the engine's trace as it happens, for the page.

Owns the stream. Does not know the engine: it follows a feed, which drops what a slow reader does not fetch.

vLLM: no counterpart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Protocol

from fastapi import APIRouter, Request
from starlette.responses import Response

from stage1.server.streaming import Events, EventStream

_BURST = 100  # events sent in a row before other requests get their turn


class Feed(Protocol):
    """Where trace events come from (``stage1.trace.sinks.LiveFeed``)."""

    def follow(self) -> AsyncGenerator[dict[str, Any], None]:
        """The latest events, then each new one; ends when the feed is closed."""


def live_router(feed: Feed) -> APIRouter:
    """The route over ``feed``."""
    router = APIRouter()

    @router.get("/live")
    async def live(request: Request) -> Response:
        """Trace events, one JSON object each."""
        stopping: asyncio.Event = request.app.state.context.stopping
        return EventStream(_until(stopping, feed.follow()))

    return router


async def _until(stopping: asyncio.Event, events: AsyncGenerator[dict[str, Any], None]) -> Events:
    """``events`` until they end or the server stops."""
    stop = asyncio.ensure_future(stopping.wait())
    count = 0
    async with aclosing(events):
        try:
            while not stop.done():
                coming = asyncio.ensure_future(anext(events))
                try:
                    await asyncio.wait((coming, stop), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not coming.done():
                        coming.cancel()
                        await asyncio.gather(coming, return_exceptions=True)
                if coming.cancelled():
                    return
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                yield event
                count += 1
                if count % _BURST == 0:
                    await asyncio.sleep(0)
        finally:
            stop.cancel()
