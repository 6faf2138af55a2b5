"""Where a GPU's time goes: the kernels of some steps, by name, beside the time in which none ran.

Owns how launches are recorded and summed up. Does not know engines; serving imports nothing from here.

    wall     |<------------------------- a step by the clock, not recorded -------------------------->|
    kernels  |kkkkkkkkkk|kkkk|kkkkkkkkkkkkkkk|kkkkk|
    idle                                            |  the rest: the host's part, and gaps between kernels  |

vLLM: ``vllm/profiler/layerwise_profile.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

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
    times: dict[str, list[float]] = {}
    for event in recorded.events():
        if event.device_type.name == "CUDA":
            times.setdefault(short(event.name), []).append(event.time_range.elapsed_us())
    return summed(times, steps, wall)


def summed(times: dict[str, list[float]], steps: int, wall: float) -> dict[str, Any]:
    """The report of ``steps`` steps.

    Args:
        times: a kernel's name → microseconds of each of its launches.
        steps: in which they were launched.
        wall: microseconds of a step.
    """
    kernels: list[dict[str, Any]] = [
        {"kernel": name, "launches": len(us) / steps, "us": sum(us) / steps, "us_each": sum(us) / len(us)}
        for name, us in times.items()
    ]
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
