"""The clock: graph replays, the GPU's own rates, medians with their spread.

Owns how a launch is timed. Does not know kernels. A graph holds 20 or more launches, over all sets of inputs of a case,
so the host is not in the figure; the gap between two launches of a graph, about a microsecond, is.
"""

from __future__ import annotations

import platform
import statistics
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import torch
import triton

from bench_kernels.arena import Case

LAUNCHES = 20  # of a graph, at least
ENOUGH_US = 3000.0  # a timing lasts at least this long


class CapturedCase:
    """A case's launches in a graph, ready to be timed again and again."""

    def __init__(self, case: Case) -> None:
        self._num_launches = max(LAUNCHES, len(case.launches))
        for launch in case.launches[:3]:  # compiles, and lets libraries allocate, outside the capture
            launch()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for i in range(self._num_launches):
                case.launches[i % len(case.launches)]()
        once = self._replay(1)  # the first replay uploads the graph
        self._repeats = max(1, round(ENOUGH_US / max(once, 1.0)))

    def microseconds(self) -> float:
        """Of one launch, now."""
        return self._replay(self._repeats) / (self._repeats * self._num_launches)

    def _replay(self, repeats: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            self._graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3


def device_rates() -> dict[str, float]:
    """What the GPU reaches now: read stream and copy in TB/s, an 8192³ bf16 matmul in TFLOP/s."""
    data = torch.randn(1 << 29, device="cuda")  # 2 GiB, far beyond the L2 cache
    copy = torch.empty_like(data)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    return {
        "read_tb_s": data.nbytes / median_us(lambda: data.sum()) / 1e6,
        "copy_tb_s": 2 * data.nbytes / median_us(lambda: copy.copy_(data)) / 1e6,
        "matmul_tflop_s": 2 * 8192**3 / median_us(lambda: a @ b) / 1e6,
    }


def median_us(run: Callable[[], Any], repeats: int = 10) -> float:
    """Median microseconds of ``run``, for work that is long against a launch."""
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return statistics.median(times)


def spread(times: list[float]) -> dict[str, float]:
    """Median, smallest and largest."""
    return {"us": statistics.median(times), "us_min": min(times), "us_max": max(times)}


def provenance(commit: str | None) -> dict[str, Any]:
    """Where and with what this was measured."""
    if commit is None:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        commit = git.stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "gpu": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "dtype": "bfloat16",
    }
