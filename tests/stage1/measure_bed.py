"""Measuring scripts without a GPU: the clock of ``torch.cuda`` is the host's, engines are tiny and on the CPU."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sixfold.exercises.importer import load_file
from stage1 import measuring, workloads

STAGES = Path(__file__).parents[2] / "stages"
RATES = {"read_tb_s": 4.0, "copy_tb_s": 3.9, "matmul_tflop_s": 700.0}
PLACE = ["date", "commit", "gpu", "python", "torch", "triton", "transformers", "dtype"]  # keys of a result


class HostEvent:
    """A CUDA event by the host's clock; like a real one it needs to be recorded, and waited for, before it is read."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at, self.reached, self.enable_timing = 0.0, False, enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        self.reached = True

    def elapsed_time(self, end: HostEvent) -> float:
        assert self.enable_timing
        assert end.enable_timing
        assert self.at > 0.0
        assert end.reached
        return max((end.at - self.at) * 1e3, 1e-6)


def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the clock and the provenance ask of ``torch.cuda``; engines still find no GPU and take the CPU."""
    fakes: dict[str, Any] = {
        "synchronize": lambda: None,
        "Event": HostEvent,
        "empty_cache": lambda: None,
        "get_device_name": lambda: "Fake H1 XL",
        "mem_get_info": lambda: (40 << 30, 100 << 30),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)


def load(monkeypatch: pytest.MonkeyPatch, file: str, **constants: Any) -> Any:
    """A script as a module, its ``constants`` replaced, before a GPU that is not there."""
    path = STAGES / file
    monkeypatch.syspath_prepend(str(path.parent))  # as when it is run
    script = load_file(path)
    fake_gpu(monkeypatch)
    monkeypatch.setattr(script, "require_gpu", lambda: None)
    monkeypatch.setattr(script, "device_rates", lambda *sizes: dict(RATES))
    for name, value in constants.items():
        assert hasattr(script, name), name
        monkeypatch.setattr(script, name, value)
    return script


def small_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and short requests, whose ids a tiny model has."""
    small: dict[str, Any] = {"MAX_ID": 250, "DECODE_STEPS": 3, "CONTEXT": 8, "REQUESTS": 6, "LENGTHS": (4, 12)}
    for name, value in small.items():
        monkeypatch.setattr(workloads, name, value)
    monkeypatch.setattr(workloads, "SIZES", {"max_model_len": 64, "max_num_batched_tokens": 512})


def run(monkeypatch: pytest.MonkeyPatch, script: Any, folder: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """``main`` with these words; the name and the content of the one file that it writes."""
    monkeypatch.setattr(sys, "argv", ["script", "--out", str(folder / "new"), "--commit", "abc", *words])
    script.main()
    (path,) = (folder / "new").iterdir()
    text = path.read_text()
    assert text.endswith("}\n")
    result = json.loads(text)
    assert (result["commit"], result["gpu"], result["dtype"]) == ("abc", "Fake H1 XL", "bfloat16")
    assert result["torch"] == torch.__version__
    return path.name.replace(result["date"][:10], "DATE"), result


def without_a_gpu(monkeypatch: pytest.MonkeyPatch, script: Any) -> None:
    """``main`` ends at once, and says why."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(script, "require_gpu", measuring.require_gpu)
    monkeypatch.setattr(script, "provenance", None)
    monkeypatch.setattr(sys, "argv", ["script"])
    with pytest.raises(SystemExit, match="no CUDA GPU is there: nothing to measure"):
        script.main()
