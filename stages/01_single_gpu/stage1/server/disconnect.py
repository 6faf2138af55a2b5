"""Work for a client lasts as long as the client is there.

Owns the race between work and the end of a connection. A server framework cancels streams at best; a request that
is answered in one piece, or still waits for its first token, must end as well when nobody will read it.

vLLM: ``with_cancellation`` in ``vllm/entrypoints/utils.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client closed the connection before its answer was complete."""


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled and cleaned up if the client leaves first.

    ``receive`` is the request's own channel, with the body already read: all it can say now is that the client left.

    Raises:
        ClientGoneError: the client left.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
