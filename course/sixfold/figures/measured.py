"""Figures that were measured on a GPU and lie beside the benchmarks, with the GPU's name.

Owns the reading of ``stages/06_benchmark/results``. Where nothing was measured, callers say so or assume.

vLLM: none; its dashboards are elsewhere.
"""

from __future__ import annotations

import json
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
    """The latest measurement of a stage's engine on a GPU, with the model ``shape`` if one is named; or ``None``."""
    folder = root() / "stages" / "06_benchmark" / "results" if folder is None else folder
    runs = []
    for path in sorted(folder.glob(f"stage{stage}_*.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        shapes = [entry.get("shape") for entry in run.get("shapes", [])] if isinstance(run, dict) else []
        if shapes and "gpu" in run and "rates_before" in run and shape in (None, *shapes):
            runs.append(run)
    return max(runs, key=lambda run: str(run.get("date", "")), default=None)


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
