"""Running the server: port first, then the engine, then requests, and a clean end.

Owns the socket, the signals and the order of things. Does not know how an engine is built: it is handed a function.

vLLM: ``run_server`` in ``vllm/entrypoints/openai/api_server.py``, ``vllm/entrypoints/launcher.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import APIRouter, FastAPI

from stage1.config import Settings
from stage1.server.app import configured_keys, create_app
from stage1.server.config import ServerConfig
from stage1.server.context import Collector

if TYPE_CHECKING:
    from stage1.text_client import TextClient

logger = logging.getLogger(__name__)

GRACE_SECONDS = 3  # for requests in flight once the server is told to stop
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(
    settings: Settings,
    start_client: Callable[[], TextClient],
    routers: Sequence[APIRouter] = (),
    collectors: Sequence[Collector] = (),
    *,
    parts: Mapping[str, str] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM. Call it from the main thread.

    The port is taken before ``start_client`` loads the model, so that a mistake shows in a second and not in a minute.

    Raises:
        SystemExit: 1, the port is not free; the message names the remedy.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    config = settings[ServerConfig]
    with contextlib.closing(bind(config)) as sock, _signals_interrupt():
        client = None
        try:
            client = start_client()
            app = create_app(client, routers, collectors, config=config, parts=parts)
            _announce(config, sock, client.model_name)
            asyncio.run(_run(app, config, sock))
        except KeyboardInterrupt:
            logger.info("stopped before the server was up")
        finally:
            if client is not None:
                client.shutdown()
    logger.info("the server has stopped")


@contextlib.contextmanager
def serve_in_thread(
    client: TextClient,
    routers: Sequence[APIRouter] = (),
    collectors: Sequence[Collector] = (),
    *,
    config: ServerConfig = ServerConfig(port=0),
    parts: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Serve beside other work, for notebooks and tests: yields the address and stops at the end of the block.

    The caller shuts the client down afterwards.
    """
    sock = bind(config)
    app = create_app(client, routers, collectors, config=config, parts=parts)
    server = _server(app, config)
    thread = threading.Thread(target=lambda: asyncio.run(_serve(server, app, sock)), name="server", daemon=True)
    thread.start()
    try:
        yield base_url(config, sock)
    finally:
        server.should_exit = True
        thread.join()
        sock.close()


def bind(config: ServerConfig) -> socket.socket:
    """A listening socket on the configured address.

    Raises:
        SystemExit: 1, it cannot be had.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        sock = socket.create_server((config.host, config.port), family=family, backlog=2048)
        # Inherited by every connection. asyncio sets it only on sockets made with an explicit protocol number, and
        # without it the kernel holds each small write back for up to 40 ms: a streamed token, or a short answer's body.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    except OSError as error:
        reason = error.strerror or str(error)
        raise SystemExit(
            f"cannot listen on {config.host} port {config.port}: {reason}; stop the program that holds it or "
            "choose another with --port (0 = any free one)"
        ) from None


def base_url(config: ServerConfig, sock: socket.socket) -> str:
    """Where a browser on this machine finds the server."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}"


# --- below: uvicorn ----------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which raise the signal again and so end the process before its clean-up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: FastAPI, config: ServerConfig) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http="h11",  # it limits the size of headers
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_level=config.uvicorn_log_level,
            access_log=not config.disable_uvicorn_access_log,
            timeout_graceful_shutdown=GRACE_SECONDS,
            server_header=False,
        )
    )


async def _run(app: FastAPI, config: ServerConfig, sock: socket.socket) -> None:
    """Serve until a stop signal comes."""
    server = _server(app, config)
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, _stop, server)
    try:
        await _serve(server, app, sock)
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


def _stop(server: _Server) -> None:
    server.force_exit = server.should_exit  # asked twice: do not wait for requests in flight
    server.should_exit = True


async def _serve(server: _Server, app: FastAPI, sock: socket.socket) -> None:
    watch = asyncio.create_task(_end_streams(server, app.state.context.stopping))
    try:
        await server.serve(sockets=[sock])
    finally:
        watch.cancel()


async def _end_streams(server: _Server, stopping: asyncio.Event) -> None:
    """Let streams that never end by themselves end when the server stops."""
    while not server.should_exit:
        await asyncio.sleep(0.1)
    stopping.set()


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """While the engine loads, SIGTERM does what SIGINT does: it interrupts, so that everything is cleaned up."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(config: ServerConfig, sock: socket.socket, model_name: str) -> None:
    url = base_url(config, sock)
    key = ' -H "Authorization: Bearer $KEY"' if configured_keys(config) else ""
    logger.info("%s is served at %s/v1, the page is at %s/", model_name, url, url)
    headers = f"-H 'Content-Type: application/json'{key}"
    logger.info("""try: curl %s/v1/completions %s -d '{"prompt": "1, 2, 3, 4, 5,"}'""", url, headers)
