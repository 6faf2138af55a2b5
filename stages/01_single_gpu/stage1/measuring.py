"""What the measuring scripts of all stages share: the clock, a device's own rates, where it was measured, the file.

Owns how a time is taken and what stands beside it. Does not know engines (``workloads`` does), nor what a script
measures; serving imports nothing from here.

vLLM: ``vllm/benchmarks/latency.py``, ``vllm/benchmarks/lib/utils.py`` (``write_to_json``), ``vllm/collect_env.py``.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")

LIBRARIES = ("torch", "triton", "transformers")  # whose versions are written down
STREAM_NUMBERS = 1 << 30  # 4 GiB of float32, far beyond the L2 cache
MATMUL = 8192  # rows and columns


def require_gpu() -> None:
    """End the program where there is no GPU."""
    if not torch.cuda.is_available():
        sys.exit("no CUDA GPU is there: nothing to measure")


def free_memory() -> None:
    """Give back what nobody holds any more, so that the next engine finds it free."""
    gc.collect()
    torch.cuda.empty_cache()


def timed(run: Callable[[], Any]) -> float:
    """Milliseconds of ``run`` by the wall clock, the device's work included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def median_ms(run: Callable[[], Any], repeats: int) -> float:
    """Median milliseconds of ``run`` on the device, by CUDA events; for work that is long against a launch."""
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def device_rates(stream_numbers: int = STREAM_NUMBERS) -> dict[str, float]:
    """What the GPU reaches now: read stream and copy in TB/s, an 8192³ bf16 matmul in TFLOP/s.

    Args:
        stream_numbers: float32 numbers that are read; the copy takes as many again.
    """
    data = torch.randn(stream_numbers, device="cuda")
    copy = torch.empty_like(data)
    a, b = (torch.randn(MATMUL, MATMUL, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    return {
        "read_tb_s": data.nbytes / median_ms(lambda: data.sum(), 10) / 1e9,
        "copy_tb_s": 2 * data.nbytes / median_ms(lambda: copy.copy_(data), 10) / 1e9,
        "matmul_tflop_s": 2 * MATMUL**3 / median_ms(lambda: a @ b, 10) / 1e9,
    }


def turned(names: Sequence[T], number: int) -> list[T]:
    """``names`` from another one on in each round: who comes first may be slower."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def spread(runs: list[dict[str, float]], key: str) -> dict[str, Any]:
    """The run with the median ``key``, with the smallest and largest beside it."""
    ordered = sorted(runs, key=lambda run: run[key])
    return {
        **ordered[len(ordered) // 2],
        f"{key}_min": ordered[0][key],
        f"{key}_max": ordered[-1][key],
        "rounds": len(runs),
    }


def spread_of(values: Sequence[float], name: str) -> dict[str, float]:
    """Median, smallest and largest, under ``name``."""
    return {name: statistics.median(values), f"{name}_min": min(values), f"{name}_max": max(values)}


def rounded_spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest to two places, for microseconds of the host."""
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


def provenance(commit: str | None, libraries: Sequence[str] = LIBRARIES) -> dict[str, Any]:
    """Where and with what something was measured on a GPU.

    Args:
        commit: to write down; git is asked without it.
        libraries: whose versions are wanted. They are imported here, as a stage must run without most of them.
    """
    if commit is None:
        commit = _git("rev-parse", "HEAD")
    return {
        "date": _now(),
        "commit": commit or "unknown",
        "gpu": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        **{name: import_module(name).__version__ for name in libraries},
        "dtype": "bfloat16",
    }


def host_provenance(commit: str | None) -> dict[str, Any]:
    """Where something was measured on the host alone; git is asked for the commit if there is none."""
    return {
        "date": _now(),
        "commit": commit or git_commit(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def git_commit() -> str:
    """The commit that is checked out, and whether the stages differ from it; ``unknown`` outside a repository."""
    commit = _git("rev-parse", "HEAD") or "unknown"
    return f"{commit} with local changes" if _git("status", "--porcelain", "stages/*.py") else commit


def cpu_name() -> str:
    """What the system calls the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_result(folder: Path, name: str, result: Mapping[str, Any], machine: str | None = None) -> Path:
    """Write ``result`` into ``folder``, which is made if need be; the file is called after name, machine and date.

    Args:
        folder: where results lie.
        name: what was measured: ``stage2_engine``.
        result: with a ``date``, and a ``gpu`` if there is no ``machine``.
        machine: the GPU by default.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine = result["gpu"].replace(" ", "-").lower() if machine is None else machine
    path = folder / f"{name}_{machine}_{result['date'][:10]}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()
