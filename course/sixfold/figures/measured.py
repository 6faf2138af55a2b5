"""Figures that were measured on a GPU and lie beside the benchmarks, with the GPU's name.

Owns the reading of ``stages/06_benchmark/results``. Where nothing was measured, callers say so or assume.

vLLM: none; its dashboards are elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.exercises.store import root


@dataclass(frozen=True)
class Rates:
    """What a device was measured to do at best."""

    device: str
    read_tb_s: float  # reading memory in a stream
    matmul_tflop_s: float  # large matrix products in bfloat16


ASSUMED = Rates("a GPU as one might assume it, nothing was measured", 4.0, 700.0)


def newest_run(stage: int, shape: str | None = None, folder: Path | None = None) -> dict[str, Any] | None:
    """The latest times of a stage's decode steps on a GPU, with the model ``shape`` if one is named; or ``None``."""
    return _newest(stage, lambda entry: shape in (None, entry["shape"]) and bool(entry.get("decode")), folder)


def newest_profile(stage: int, shape: str, folder: Path | None = None) -> dict[str, Any] | None:
    """The latest profile of a stage's decode steps on a GPU with the model ``shape``; or ``None``."""
    return _newest(stage, lambda entry: shape == entry["shape"] and bool(_decode_cases(entry)), folder)


def label(run: dict[str, Any]) -> str:
    """Where and when: ``NVIDIA H200, bfloat16, 2026-11-29``."""
    return ", ".join(str(run[key])[:20].partition("T")[0] for key in ("gpu", "dtype", "date") if key in run)


def rates(run: dict[str, Any] | None) -> Rates:
    """The device's rates in a run; assumed ones without it."""
    if run is None:
        return ASSUMED
    found = run["rates_before"]
    return Rates(label(run), float(found["read_tb_s"]), float(found["matmul_tflop_s"]))


def decode_steps(run: dict[str, Any] | None, shape: str) -> list[tuple[int, int, float]]:
    """Batch, context and milliseconds of each decode step that was measured with the model ``shape``."""
    shapes = [] if run is None else run.get("shapes", [])
    return [
        (int(step["batch"]), int(step["context"]), float(step["wall_ms"]))
        for entry in shapes
        if entry.get("shape") == shape
        for step in entry.get("decode", [])
    ]


def profiled_steps(run: dict[str, Any] | None, shape: str) -> list[tuple[str, dict[str, Any]]]:
    """A name and the profile of each decode step that was profiled with the model ``shape``."""
    return [
        (f"batch {case['batch']}, {case['context']} keys", case)
        for entry in ([] if run is None else run["shapes"])
        if entry["shape"] == shape
        for case in _decode_cases(entry)
    ]


def _decode_cases(entry: dict[str, Any]) -> list[dict[str, Any]]:
    return [case for case in entry.get("cases", []) if case["case"] == "decode"]


def _newest(stage: int, holds: Callable[[dict[str, Any]], bool], folder: Path | None) -> dict[str, Any] | None:
    """The latest of a stage's runs on a GPU of which an entry of a shape ``holds`` what is wanted."""
    folder = root() / "stages" / "06_benchmark" / "results" if folder is None else folder
    runs = []
    for path in sorted(folder.glob(f"stage{stage}_*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        entries = run.get("shapes", []) if isinstance(run, dict) else []
        if "gpu" in run and "rates_before" in run and any(map(holds, entries)):
            runs.append(run)
    return max(runs, key=lambda run: str(run.get("date", "")), default=None)
