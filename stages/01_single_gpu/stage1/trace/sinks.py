"""Where events go: a file, a list, or whoever watches the engine live.

Owns the encoding and the hand-over between threads. Does not know what an event means, but for one thing: the end of
a request is a good moment to flush. No sink ever blocks or stops the engine.

vLLM: ``v1/metrics/loggers.py`` (one interface, several destinations).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stage1.trace.events import Event, EventsLost, RequestFinished, TraceStart

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes events one after another."""

    def write(self, event: Event) -> None:
        """Take ``event``; after ``close`` it is dropped."""

    def close(self) -> None:
        """No more events will come; a second call does nothing."""


class MemorySink:
    """Keeps every event in ``events``: for tests and notebooks."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: Event) -> None:
        """Append ``event``."""
        self.events.append(event)

    def close(self) -> None:
        """Nothing to do: the list stays readable."""


class JsonLinesSink:
    """A file with one JSON object a line.

    Buffered, and flushed when a request ends: after a crash the file is whole up to the last flush, and at most its
    last line is cut. A disk that fills up ends the trace with a warning in the log, not the engine.

    Raises:
        ValueError: ``path`` cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        try:
            self._file = Path(path).open("wb")  # noqa: SIM115 — open until close()
        except OSError as error:
            raise ValueError(
                f"cannot write the trace to {str(path)!r}: {error.strerror}; give --trace a file in a writable folder"
            ) from error
        self._path = path
        self._encoder = msgspec.json.Encoder()

    def write(self, event: Event) -> None:
        """Add a line."""
        if self._file.closed:
            return
        try:
            self._file.write(self._encoder.encode(event) + b"\n")
            if isinstance(event, RequestFinished):
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Flush and close the file."""
        try:
            self._file.close()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _log.warning("the trace %s ends here: %s", self._path, error)
        with contextlib.suppress(OSError):  # closing flushes and fails again, but lets the descriptor go
            self._file.close()


def open_sinks(path: str | None, sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """``sinks``, and a file at ``path`` unless that is ``None``.

    Raises:
        ValueError: ``path`` cannot be written.
    """
    return tuple(sinks) if path is None else (*sinks, JsonLinesSink(path))


class LiveFeed:
    """The last ``capacity`` events, for any number of readers in other threads or event loops.

    The engine's thread writes into a ring and wakes the readers; it never waits for one. Each reader keeps only a
    position, so one that is slower than ``capacity`` events loses the oldest and is told how many by ``EventsLost``.
    ``TraceStart`` is kept outside the ring: every reader gets it first.

        total = 12, capacity = 5        7  8  9  10  11 |        the ring holds [total - len(ring), total)
        a reader at 9 gets 9, 10, 11; a reader at 4 gets EventsLost(3), 7, 8, 9, 10, 11
    """

    def __init__(self, capacity: int = 10_000) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; a live feed must keep at least 1 event")
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()
        self._start: bytes | None = None
        # Encoded: a few KB an event at hundreds of requests, and nothing that the garbage collector must look through.
        self._ring: deque[bytes] = deque(maxlen=capacity)
        self._total = 0  # events ever put into the ring
        self._closed = False
        self._sleepers: set[_Sleeper] = set()

    def write(self, event: Event) -> None:
        """Keep ``event`` and wake whoever waits for one. From any thread."""
        line = self._encoder.encode(event)
        with self._lock:
            if self._closed:
                return
            if isinstance(event, TraceStart):
                self._start = line
            else:
                self._ring.append(line)
                self._total += 1
            self._wake_all()

    def close(self) -> None:
        """Let every reader finish what is left and end."""
        with self._lock:
            self._closed = True
            self._wake_all()

    def snapshot(self) -> list[dict[str, Any]]:
        """The start of the trace and what the ring holds, as plain dictionaries. From any thread."""
        return list(_rows(*self._read(None)[:2]))

    async def follow(self) -> AsyncGenerator[dict[str, Any], None]:
        """The snapshot, then each new event as it comes; ends when the feed is closed."""
        sleeper = _Sleeper(asyncio.get_running_loop())
        position: int | None = None
        while True:
            lines, num_lost, position, closed = self._read(position, sleeper)
            for row in _rows(lines, num_lost):
                yield row
            if lines:
                continue
            if closed:
                return
            try:
                await sleeper.woken.wait()
            finally:
                self._forget(sleeper)
            sleeper.woken.clear()

    def _read(self, position: int | None, sleeper: _Sleeper | None = None) -> tuple[list[bytes], int, int | None, bool]:
        """Events from ``position`` on (``None`` = all, start included), how many are lost, next position, is it closed.

        Where there is nothing to read, ``sleeper`` is registered under the same lock, so that no wake-up is missed.
        """
        with self._lock:
            first = self._total - len(self._ring)
            wanted = position or 0
            lines = list(islice(self._ring, max(wanted - first, 0), None))
            if position is None and self._start is not None:
                lines.insert(0, self._start)
            if sleeper is not None and not lines and not self._closed:
                self._sleepers.add(sleeper)
            return lines, max(first - wanted, 0), self._total if lines else position, self._closed

    def _wake_all(self) -> None:
        for sleeper in self._sleepers:
            sleeper.wake()
        self._sleepers.clear()  # a busy engine wakes a reader once, not once an event

    def _forget(self, sleeper: _Sleeper) -> None:
        with self._lock:
            self._sleepers.discard(sleeper)


def _rows(lines: list[bytes], num_lost: int) -> Iterator[dict[str, Any]]:
    """``lines`` decoded one by one, with ``EventsLost`` where events are missing: behind the start of the trace."""
    for line in lines:
        row: dict[str, Any] = msgspec.json.decode(line)
        if num_lost and row["kind"] != "trace_start":
            yield msgspec.to_builtins(EventsLost(row["t"], num_lost))
            num_lost = 0
        yield row


class _Sleeper:
    """A reader that waits in its own event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.woken = asyncio.Event()

    def wake(self) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the reader's loop has been closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.woken.set)
