"""From the bytes of a request to a checked schema.

Owns the limits on size, number of values, time, depth and content type. Does not know what the fields mean.

vLLM: ``validate_json_request`` in ``vllm/entrypoints/openai/api_server.py``; the limits are ours.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from stage1.server.config import ServerConfig
from stage1.server.disconnect import ClientGoneError
from stage1.server.errors import ApiError
from stage1.server.protocol import Body

logger = logging.getLogger(__name__)

B = TypeVar("B", bound=Body)

_LARGE = 100_000  # bytes; parsing more takes milliseconds, which the event loop cannot spare


async def read_body(request: Request, schema: type[B], config: ServerConfig) -> B:
    """Read, parse and check the request's JSON.

    Raises:
        ApiError: 400 for a wrong content type, JSON or field, 408 for a slow body, 413 for one that is large or has too
            many values.
        pydantic.ValidationError: a field is wrong; it becomes a 400.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiError(f"the content type is {media_type!r}; send application/json")
    raw = await _read_bytes(request, config)
    _check_values(raw, config.max_body_values)
    body = await asyncio.to_thread(_parse, raw, schema) if len(raw) > _LARGE else _parse(raw, schema)
    if body.model_extra:
        names = ", ".join(repr(name[:40]) for name in sorted(body.model_extra)[:10])
        logger.warning("ignored unknown fields of %s: %s", request.url.path, names)
    return body


def _parse(raw: bytes, schema: type[B]) -> B:
    try:
        data = from_json(raw, allow_inf_nan=False, cache_strings="all")
    except ValueError as error:
        raise ApiError(f"the body is not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise ApiError("the body must be a JSON object")
    return schema.model_validate(data)


def _check_values(raw: bytes, limit: int) -> None:
    """Refuse what would become too many objects, before any of them is made.

    A JSON text has at most one key or value more than commas, colons and opening brackets; those inside strings count,
    too, so this never says too few. It takes a few milliseconds for the largest body.
    """
    most = 1 + sum(map(raw.count, (b",", b":", b"[", b"{")))
    if most > limit:
        message = f"the body has up to {most:,} values; the limit is {limit:,}: send less or raise --max-body-values"
        raise ApiError(message, status=413)


async def _read_bytes(request: Request, config: ServerConfig) -> bytes:
    limit = config.max_body_mib << 20
    too_large = ApiError(
        f"the body is larger than {config.max_body_mib} MiB: send less or raise --max-body-mib", status=413
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(config.body_timeout):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > limit:
                    raise too_large
    except TimeoutError:
        raise ApiError(f"the body did not arrive within {config.body_timeout:g} seconds", status=408) from None
    except ClientDisconnect:
        raise ClientGoneError from None
    return bytes(raw)
