"""Compiles kernels in several processes at once, into Triton's cache on disk, before anything is timed.

Owns the processes. A compiler run takes a second or more and one core; a measurement wants some hundred of them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import torch

from bench_kernels.arena import Arena
from bench_kernels.points import UNTILED, Point

SCRATCH_NUMBERS = 1 << 26
FREE_CORES = 2


@cache
def scratch_arena() -> Arena:
    """A small arena, one a process."""
    return Arena(SCRATCH_NUMBERS, most_sets=1)


def try_point(point: Point) -> str | None:
    """Run a launch of a shrunk point's kernel: why it failed, such as too little shared memory, or ``None``."""
    try:
        point.build(scratch_arena()).launches[0]()
        torch.cuda.synchronize()
    except Exception as error:  # whatever one of many variants raises must not end the sweep
        return f"{type(error).__name__}: {str(error)[:160]}"
    return None


def compile_all(points: Sequence[Point]) -> dict[str, str]:
    """Put the kernels of ``points`` into the cache; returns, by ``str(point)``, why some of them cannot run."""
    small = {str(point): point.shrink() for point in points if point.kernel not in UNTILED}
    unique = list({str(point): point for point in small.values()}.values())
    workers = max(1, min((os.cpu_count() or 1) - FREE_CORES, len(unique) // 2))
    context = multiprocessing.get_context("spawn")  # a forked process could not use the GPU
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        reasons = dict(zip(map(str, unique), pool.map(try_point, unique), strict=True))
    found = {name: reasons[str(point)] for name, point in small.items()}
    return {name: reason for name, reason in found.items() if reason is not None}
