"""Limits that a child process puts on itself before it runs a learner's code.

Owns how much memory an exercise may ask for. Does not know exercises.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

EXTRA_MEMORY = 4 * 2**30  # bytes beyond what the process has already


def limit_memory(extra: int = EXTRA_MEMORY) -> None:
    """From now on, more than ``extra`` further bytes raise ``MemoryError``; where that cannot be set, do nothing."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + extra
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or limit < hard:
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def limit_time(seconds: int) -> None:
    """End the process after that many seconds of computing, whoever started it and whatever it does by then."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if hard == resource.RLIM_INFINITY or seconds < hard:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard))
