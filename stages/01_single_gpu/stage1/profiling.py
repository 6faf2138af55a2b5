"""Where a GPU's time goes: the kernels of some steps, by name, beside the time in which none ran.

Owns how launches are recorded and summed up. Does not know engines; serving imports nothing from here.

    wall     |<------------------------- a step by the clock, not recorded -------------------------->|
    kernels  |kkkkkkkkkk|kkkk|kkkkkkkkkkkkkkk|kkkkk|
    idle                                            |  the rest: the host's part, and gaps between kernels  |

vLLM: ``vllm/profiler/layerwise_profile.py``.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile

from stage1.measuring import timed

NAME = 90  # characters of a kernel's name that are kept: the rest of a template's parameters says little
MOST = 24  # kernels that are listed, those that take the most time


def profile_steps(step: Callable[[], Any], steps: int) -> dict[str, Any]:
    """Microseconds of a step: by the wall clock, and of each kernel.

    ``2 * steps`` steps are taken: the first half against the clock, the second recorded, as recording takes time of its
    own.

    Args:
        step: one step; it may return before the device has done it.
        steps: of each half.
    """

    def run() -> None:
        for _ in range(steps):
            step()

    wall = timed(run) * 1e3 / steps
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as recorded:
        run()
        torch.cuda.synchronize()
    launches = [
        Launch(short(event.name), event.time_range.start, event.time_range.end)
        for event in recorded.events()
        if event.device_type.name == "CUDA"
    ]
    return summed(launches, steps, wall)


class Launch(NamedTuple):
    """One run of a kernel, in microseconds of one clock."""

    kernel: str
    start: float
    end: float


def summed(launches: list[Launch], steps: int, wall: float) -> dict[str, Any]:
    """The report of ``steps`` steps, of which a mean one took ``wall`` microseconds.

    ``gap_us`` is the time before a kernel in which none ran: what its launch costs where the device was ready for it,
    and what the host took where it was not.
    """
    times: dict[str, list[tuple[float, float]]] = {}
    before = None
    for kernel, start, end in sorted(launches, key=lambda launch: launch.start):
        gap = 0.0 if before is None else max(start - before, 0.0)
        times.setdefault(kernel, []).append((end - start, gap))
        before = end if before is None else max(before, end)
    kernels: list[dict[str, Any]] = []
    for kernel, each in times.items():
        us, gaps = (sum(column) for column in zip(*each, strict=True))
        row = {"launches": len(each) / steps, "us": us / steps, "us_each": us / len(each), "gap_us": gaps / steps}
        kernels.append({"kernel": kernel, **row, "gap_us_each": statistics.median(gap for _, gap in each)})
    kernels.sort(key=lambda row: -row["us"])
    busy = sum(row["us"] for row in kernels)
    return {
        "steps": steps,
        "wall_us": wall,
        "kernels_us": busy,
        "idle_us": wall - busy,
        "launches": sum(row["launches"] for row in kernels),
        "kernels": kernels[:MOST],
    }


def short(name: str) -> str:
    """A kernel's name without what C++ puts around it, at most ``NAME`` characters."""
    bare = re.sub(r"^void |at::native::|\(anonymous namespace\)::", "", name)
    return bare[:NAME]
