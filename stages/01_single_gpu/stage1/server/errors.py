"""What clients see when something is wrong: one JSON shape, one clear message, the field at fault.

Owns the error body and the mapping from exceptions to statuses. Does not know the routes.

vLLM: ``ErrorResponse`` in ``vllm/entrypoints/openai/protocol.py``, handlers in ``api_server.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stage1.interfaces import EngineDeadError
from stage1.server.disconnect import ClientGoneError

_TYPES = {400: "BadRequestError", 404: "NotFoundError"}
CLIENT_CLOSED_REQUEST = 499  # nobody reads it; it tells the access log what happened


class ApiError(Exception):
    """An answer other than 200. ``param`` names the request's field at fault."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param


def bad_request(error: ValueError, fields: Iterable[str] = ()) -> ApiError:
    """A 400 for what the engine's checks refuse.

    Their messages have the field's name as the first word (``temperature must …``); where that is one of ``fields``, it
    becomes ``param``.
    """
    word = re.match(r"\w*", str(error))
    name = word.group() if word else ""
    return ApiError(str(error), param=name if name in set(fields) else None)


def as_api_error(error: Exception) -> ApiError:
    """The status and message for any exception; what nobody foresaw is a 500."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ValidationError):
        return _from_details(error.errors(include_url=False, include_context=False)[0])
    if isinstance(error, RequestValidationError):  # a route of a later stage that lets FastAPI read its arguments
        first = error.errors()[0]
        return _from_details(first | {"loc": first["loc"][1:]})
    if isinstance(error, HTTPException):
        return ApiError(str(error.detail), status=error.status_code)
    if isinstance(error, EngineDeadError):
        return ApiError(f"the engine has stopped: {error}; restart the server", status=500)
    return ApiError(str(error) or type(error).__name__, status=500)


def error_body(error: ApiError) -> dict[str, Any]:
    """``{"error": {message, type, param, code}}``."""
    kind = _TYPES.get(error.status) or HTTPStatus(error.status).phrase
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.status}}


def error_response(error: ApiError) -> Response:
    """The whole answer. Where the request was not read to its end, its connection is of no further use."""
    headers = {"Connection": "close"} if error.status in (408, 413) else None
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


def install_handlers(app: FastAPI) -> None:
    """Make ``app`` answer every exception in the one shape, unknown routes included."""

    async def answer(request: Request, error: Exception) -> Response:
        return error_response(as_api_error(error))

    async def no_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            error.detail = f"there is no {request.method} {request.url.path}; this server's page is at /"
        elif error.status_code == 405:
            error.detail = f"{request.url.path} does not take {request.method}"
        response = error_response(as_api_error(error))
        response.headers.update(error.headers or {})
        return response

    async def gone(request: Request, error: Exception) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    # Exception: the server logs the traceback, because Starlette raises it again once this is sent.
    for kind in (ApiError, ValidationError, RequestValidationError, EngineDeadError, Exception):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(HTTPException, no_route)
    app.add_exception_handler(ClientGoneError, gone)


def _from_details(first: Mapping[str, Any]) -> ApiError:
    """One of pydantic's complaints, as a sentence that begins with the field."""
    path = ".".join(str(part) for part in first["loc"])
    param = str(first["loc"][0]) if first["loc"] else None
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return ApiError(f"{path} is required", param=param)
    if first["type"] == "value_error":
        return ApiError(message if message.startswith(path) else f"{path}: {message}", param=param)
    given = repr(first["input"])
    shown = given if len(given) <= 60 else given[:57] + "..."
    return ApiError(f"{path} {message.removeprefix('Input ')}, not {shown}", param=param)
