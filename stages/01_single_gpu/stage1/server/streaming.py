"""Server-sent events: the framing, and what happens when something breaks half-way.

Owns the bytes of a stream. Does not know what the events hold.

    data: {"id":"cmpl-1", …}⏎⏎  data: {"id":"cmpl-1", …}⏎⏎  data: [DONE]⏎⏎

vLLM: ``StreamingResponse`` and the ``*_stream_generator`` methods in ``vllm/entrypoints/openai/serving_*.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stage1.server.disconnect import ClientGoneError, until_disconnect
from stage1.server.errors import ApiError, as_api_error, error_body

logger = logging.getLogger(__name__)

Events = AsyncGenerator[Mapping[str, Any], None]

DONE = b"data: [DONE]\n\n"


def frame(event: Mapping[str, Any]) -> bytes:
    """One event. ASCII only: line separators that some clients split at stay escaped, and bytes may be cut anywhere."""
    return b"data: " + json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n\n"


async def open_stream(events: Events, headers: Mapping[str, str]) -> Response:
    """An answer that streams ``events``, once the first is there: what fails before it gets its proper status."""
    return EventStream(_after(await anext(events), events), headers)


class EventStream(Response):
    """Sends events until they end or the client leaves, and closes their source in either case.

    An error among them, or the end of the server, is sent as an event of its own. ``[DONE]`` ends the stream, once.
    """

    media_type = "text/event-stream"

    def __init__(self, events: Events, headers: Mapping[str, str] | None = None) -> None:
        self._events = events
        self._is_open = False  # begun, and not ended
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **(headers or {})})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the stream."""
        try:
            await until_disconnect(receive, self._send_all(send))
        except (ClientGoneError, OSError):
            logger.info("the client left a stream")
        except asyncio.CancelledError:
            if not self._is_open:
                raise
            # The server stops and has waited long enough: a response that is ended needs no traceback in the log.
            await self._end(send, ApiError("the server was stopped", status=503))

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            self._is_open = True
            try:
                async for event in events:
                    await send({"type": "http.response.body", "body": frame(event), "more_body": True})
            except OSError:
                raise  # the connection, not the engine
            except Exception as error:
                await self._end(send, as_api_error(error))
                return
            await self._end(send)

    async def _end(self, send: Send, failure: ApiError | None = None) -> None:
        self._is_open = False
        if failure is not None:
            logger.warning("a stream failed: %s", failure)
            await send({"type": "http.response.body", "body": frame(error_body(failure)), "more_body": True})
        await send({"type": "http.response.body", "body": DONE, "more_body": False})


async def _after(first: Mapping[str, Any], rest: Events) -> Events:
    async with aclosing(rest):
        yield first
        async for event in rest:
            yield event
