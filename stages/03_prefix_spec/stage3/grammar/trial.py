"""Grammars are tried in a process of their own: some crash a parser, or keep it busy for minutes.

Owns that process and its limits: an answer within a second, or the grammar is refused and the process replaced. Does
not know what is tried (``trial_worker``). It starts with the first grammar, which takes a tenth of a second, and stays
while an engine does: without one it ends with its answer.

vLLM: none; its grammars are tried in the server's own process.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

WORKER = Path(__file__).with_name("trial_worker.py")
START_SECONDS = 30.0  # of the process, on a busy machine
TOO_MUCH = "it takes too much time or memory to read: simplify it"


class Trial:
    """Asks a helper process for each grammar; may be used by several threads.

    Args:
        limits: of llguidance's parser, by name.
        seconds: for an answer.
        memory_bytes: that the process may take beyond what it starts with.
    """

    def __init__(self, limits: Mapping[str, int | bool], seconds: float = 0.8, memory_bytes: int = 1 << 30) -> None:
        self._settings = json.dumps({"limits": dict(limits), "memory_bytes": memory_bytes})
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()  # a fork of this process starts its own
        self._holders = 0
        atexit.register(self.close)

    def find_fault(self, grammar: str) -> str:
        """Why ``grammar`` cannot be used, empty if it can; within ``seconds`` once the process runs."""
        with self._lock:
            process = self._running()
            fault = None
            try:
                self._ask(process, grammar.encode())
                fault = self._answer(process, self._seconds)
            except OSError:  # it has died, or will not answer in time
                pass
            finally:  # after an interrupt, too: its answer would be taken for the next one's
                if fault is None or self._holders == 0:
                    self._stop()
        return TOO_MUCH if fault is None else fault

    def hold(self) -> None:
        """Keep the process between grammars, until as many have called ``release``."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """See ``hold``."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._stop()

    def close(self) -> None:
        """End the process; the next grammar starts another."""
        with self._lock:
            self._stop()

    # --- below: the process, under the lock --------------------------------------------------------------

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            self._owner, self._process = os.getpid(), None
        if self._process is None or self._process.poll() is not None:
            self._stop()
            # A session of its own: an interrupt at the terminal is not meant for it.
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER), self._settings],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
            self._answer(self._process, START_SECONDS)
        return self._process

    def _ask(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        assert process.stdin is not None
        left = memoryview(struct.pack("<I", len(data)) + data)
        while left:
            left = left[process.stdin.write(left) :]

    def _answer(self, process: subprocess.Popen[bytes], seconds: float) -> str:
        assert process.stdout is not None
        end = time.monotonic() + seconds
        (length,) = struct.unpack("<I", read(process.stdout, 4, end))
        return read(process.stdout, length, end).decode()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def read(pipe: IO[bytes], count: int, end: float) -> bytes:
    """``count`` bytes of an unbuffered ``pipe``.

    Raises:
        TimeoutError: they have not come by ``end`` (``time.monotonic``).
        OSError: the other side has closed it.
    """
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(data) < count:
            if not selector.select(max(end - time.monotonic(), 0)):
                raise TimeoutError
            if not (more := pipe.read(count - len(data))):
                raise OSError("the process has ended")
            data += more
    return data
