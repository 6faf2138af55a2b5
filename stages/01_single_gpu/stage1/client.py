"""The in-process client: an asynchronous face on a core that computes in a thread.

Owns the thread and its inbox. Commands run between two steps, in the order they were given, so the core itself needs
no lock.

vLLM: ``v1/engine/core_client.py`` (``InprocClient``, ``AsyncMPClient``), ``v1/engine/core.py``
(``EngineCoreProc.run_busy_loop``).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from typing import Any

from stage1.core import EngineCore
from stage1.interfaces import EngineDeadError
from stage1.records import EngineCoreOutputs, EngineCoreRequest, StepStats

logger = logging.getLogger(__name__)

IDLE_SECONDS = 0.001  # between two looks at work that cannot run yet


class InProcessClient:
    """``EngineClient`` over a core in this process. Use it from one event loop."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._outbox: asyncio.Queue[EngineCoreOutputs | EngineDeadError | None] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dead: str | None = None
        self._stats = core.stats()
        self._thread = threading.Thread(target=self._run, name="engine-core", daemon=True)
        self._thread.start()

    async def add_request(self, request: EngineCoreRequest) -> None:
        """Hand a request over; if the core refuses it, its error comes with the outputs."""
        self._send(lambda: self._add(request))

    async def abort(self, req_ids: Sequence[str]) -> None:
        """End requests before the next step; unknown ids are ignored."""
        if self._dead is None:
            self._send(lambda: self._core.abort(req_ids))

    async def outputs(self) -> AsyncIterator[EngineCoreOutputs]:
        """Every step's outputs, in order, until ``shutdown``; raises ``EngineDeadError`` when the core has died."""
        self._loop = asyncio.get_running_loop()
        while (item := await self._outbox.get()) is not None:
            if isinstance(item, EngineDeadError):
                raise item
            yield item

    async def stats(self) -> StepStats:
        """The statistics after the last step or command, without waiting for the running one.

        Raises:
            EngineDeadError: the core has died.
        """
        if self._dead is not None:
            raise EngineDeadError(self._dead)
        return self._stats

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method of the core between two steps and wait for its answer."""
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(getattr(self._core, method)(*args))
            except Exception as error:
                answer.set_exception(error)

        self._send(run)
        waiting = asyncio.wrap_future(answer)
        while not (await asyncio.wait({waiting}, timeout=1.0))[0]:
            if self._dead is not None:
                raise EngineDeadError(self._dead)
        return waiting.result()

    def shutdown(self) -> None:
        """Stop the thread after its current step and free the device; a second call does nothing."""
        if self._thread.is_alive():
            self._inbox.put(None)
            self._thread.join()
        self._dead = self._dead or "the engine was shut down"
        self._core.shutdown()

    # --- below: the thread ---------------------------------------------------------------------------

    def _send(self, command: Callable[[], None]) -> None:
        if self._dead is not None:
            raise EngineDeadError(self._dead)
        self._loop = asyncio.get_running_loop()
        self._inbox.put(command)

    def _run(self) -> None:
        """Alternate between commands and steps until told to stop."""
        try:
            idle = False
            while self._obey(idle):
                outputs = self._core.step()
                self._stats = outputs.stats or self._core.stats()
                if outputs.req_ids:
                    self._deliver(outputs)
                # Everything alive may be held back by a hook: then look again soon, not at once.
                idle = outputs.stats is not None and outputs.stats.scheduled_tokens == 0
            self._deliver(None)
        except Exception as error:
            logger.exception("the engine core has died")
            self._dead = str(error)
            self._deliver(EngineDeadError(self._dead))

    def _obey(self, idle: bool) -> bool:
        """Run the waiting commands, waiting for one while there is nothing to compute; ``False`` = stop."""
        while True:
            try:
                if not self._core.has_work:
                    command = self._inbox.get()
                else:
                    command = self._inbox.get(timeout=IDLE_SECONDS) if idle else self._inbox.get_nowait()
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
            self._stats = self._core.stats()
            idle = False

    def _add(self, request: EngineCoreRequest) -> None:
        try:
            self._core.add_request(request)
        except Exception as error:  # whatever is wrong with one request, others go on
            refused = request.req_id
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            self._deliver(EngineCoreOutputs([refused], [[]], finish_reason={refused: "error"}, error={refused: reason}))

    def _deliver(self, item: EngineCoreOutputs | EngineDeadError | None) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, item)
