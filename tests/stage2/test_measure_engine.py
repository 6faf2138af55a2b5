"""Stage 2's GPU scripts from their words to their files, on the CPU and small: what is written, not how fast it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bench_kernels.arena import Arena
from bench_kernels.points import Point
from sixfold.exercises.importer import load_file
from stage1 import workloads
from stage2 import measured

bed = load_file(Path(__file__).parents[1] / "stage1" / "measure_bed.py")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    bed.small_workloads(monkeypatch)
    monkeypatch.setattr(measured, "MAX_LEN", 200)  # the warm-up decodes behind 128 tokens
    monkeypatch.setattr(measured, "BUDGET", 256)


def test_settings_replace_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(workloads, "make_core", lambda wiring, shape, **settings: seen.append(settings))
    measured.make_core("tiny")
    measured.make_core("tiny", max_model_len=9, max_num_seqs=2)
    assert seen[0] == {"max_model_len": 200, "max_num_batched_tokens": 256}
    assert seen[1] == {"max_model_len": 9, "max_num_batched_tokens": 256, "max_num_seqs": 2}


def test_the_engine_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = bed.load(
        monkeypatch,
        "02_paged_kv/measure_engine.py",
        ROUNDS=2,
        DECODES=((1, 10), (3, 20)),
        PREFILL=(2, 20),
        EARLIER_BATCHES=(1, 3),
        library_generate=lambda shape, batch: {"batch": batch, "ms_a_token": 1.0},
    )
    monkeypatch.setattr(script.decode, "__defaults__", (4,))
    name, result = bed.run(monkeypatch, script, tmp_path, "--shapes", "tiny", "tiny")
    assert name == "stage2_engine_fake-h1-xl_DATE.json"
    assert list(result) == [*bed.PLACE, "stage", "rates_before", "shapes", "rates_after"]
    assert len(result["shapes"]) == 2
    found = result["shapes"][0]
    keys = ["shape", "start_s", "memory", "decode", "prefill", "workload_w", "stage_1", "generate"]
    assert list(found) == keys
    assert list(found["memory"]) == ["cache_gib", "share", "used_of_gpu"]
    assert found["memory"]["used_of_gpu"] == pytest.approx(0.6)
    assert [(row["batch"], row["context"]) for row in found["decode"]] == [(1, 10), (3, 20)]
    assert found["decode"][0]["event_ms"] > 0
    assert [row["batch"] for row in found["stage_1"]] == [1, 3]
    assert found["prefill"]["rounds"] == 2
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == bed.RATES


def test_what_to_measure_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = bed.load(monkeypatch, "02_paged_kv/measure_engine.py", ROUNDS=1, PREFILL=(1, 20))
    _, result = bed.run(monkeypatch, script, tmp_path, "--shapes", "tiny", "--what", "w")
    assert list(result["shapes"][0]) == ["shape", "start_s", "memory", "workload_w"]


def test_the_script_of_arrivals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = bed.load(
        monkeypatch, "02_paged_kv/measure_arrivals.py",
        ROUNDS=2, LONG_PROMPT=300, CHUNK=40, STREAM=4, LENGTHS=(4, 12), MAX_ID=250,
    )  # fmt: skip
    monkeypatch.setattr(script.mixed_step, "__defaults__", (5, 12, 2))
    make_core = script.make_core

    def smaller(shape: str, **settings: Any) -> Any:
        seats = {"max_num_seqs": 32, **settings}
        return make_core(shape, **{**seats, "max_model_len": min(settings["max_model_len"], 1024)})

    monkeypatch.setattr(script, "make_core", smaller)
    name, result = bed.run(monkeypatch, script, tmp_path, "--stream", "tiny", "--long", "tiny")
    assert name == "stage2_arrivals_fake-h1-xl_DATE.json"
    after = ["stage", "rates_before", "arrivals", "long_shape", "long_prompts", "rates_after"]
    assert list(result) == [*bed.PLACE, *after]
    assert list(result["arrivals"]) == ["shape", "capacity_tok_s", "mixed_step", "stream"]
    assert list(result["arrivals"]["mixed_step"]) == [
        "mixed_ms",
        "pure_ms",
        "ratio",
        "ratio_min",
        "ratio_max",
        "rounds",
    ]
    keys = ["rate", "requests", "tok_s", "itl_p50_ms", "itl_p99_ms", "ttft_p50_ms"]
    assert list(result["arrivals"]["stream"]) == keys
    assert [row["chunk"] for row in result["long_prompts"]] == [40, 0]


@pytest.mark.parametrize("quick", [False, True])
def test_the_script_of_kernels(
    quick: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Captured:
        def __init__(self, case: Any) -> None:
            self.times = [3.0, 1.0, 2.0]

        def microseconds(self) -> float:
            return self.times.pop()

    rates: list[tuple[int, ...]] = []
    script = bed.load(
        monkeypatch,
        "02_paged_kv/measure_kernels.py",
        CapturedCase=Captured,
        Arena=lambda numbers: Arena(1 << 18, "cpu", most_sets=2),
        compile_all=lambda points: {},
        device_rates=lambda *sizes: rates.append(sizes) or dict(bed.RATES),
        decode_points=lambda: [Point("decode", {"batch": 3, "context": 40, "shape": "135m"})],
        prefill_points=lambda: [Point("prefill", {"batch": 2, "context": 24, "shape": "135m"})],
        sampling_points=lambda: [Point("sampling", {"rows": 3, "vocab_size": 300, "mode": "greedy"})],
        matvec_points=lambda: [Point("matvec", {"num_rows": 24, "width": 48})],
        pointwise_points=lambda: [Point("norm", {"tokens": 3, "hidden": 64})],
    )
    name, result = bed.run(monkeypatch, script, tmp_path, *(["--quick"] if quick else []))
    assert name == "stage2_kernels_fake-h1-xl_DATE.json"
    place = [key for key in bed.PLACE if key != "transformers"]
    assert list(result) == [*place, "rates_before", "rates_after", "rounds", "kernels"]
    kernels = ["decode", "prefill", "sampling", "matvec"] + ([] if quick else ["norm"])
    assert [row["kernel"] for row in result["kernels"]] == kernels
    row = result["kernels"][0]
    us = ["us", "us_min", "us_max", "error", "bytes", "flops", "share"]
    assert list(row) == ["kernel", "batch", "context", "shape", *us]
    assert (row["us"], row["us_min"], row["us_max"]) == ((2.0, 2.0, 2.0) if quick else (2.0, 1.0, 3.0))
    assert rates == [(1 << 29,), (1 << 29,)]
    assert "WRONG" not in (out := capsys.readouterr().out)
    assert "measured in" in out.splitlines()[-2]


@pytest.mark.parametrize("file", ["measure_engine.py", "measure_arrivals.py", "measure_kernels.py"])
def test_without_a_gpu_nothing_is_measured(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.without_a_gpu(monkeypatch, bed.load(monkeypatch, f"02_paged_kv/{file}"))


def test_generate_beside_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's model is made and called as on a GPU, on the CPU."""
    script = bed.load(monkeypatch, "02_paged_kv/measure_engine.py")
    shape = script.resolve(script.ModelConfig(model="tiny", load_format="dummy")).shape

    class OnCpu:
        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        def device(self, name: str) -> torch.device:
            assert name == "cuda"
            return torch.device("cpu")

        def tensor(self, data: Any, device: str) -> torch.Tensor:
            assert device == "cuda"
            return torch.tensor(data)

    monkeypatch.setattr(script, "torch", OnCpu())
    found = script.library_generate(shape, 2, tokens=2)
    assert (list(found), found["batch"]) == (["batch", "ms_a_token"], 2)


def test_the_script_of_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"DECODES": ((1, 10), (3, 40)), "STEPS": 2, "PROMPT_STEPS": 4, "PREFILL": 20}
    script = bed.load(monkeypatch, "02_paged_kv/measure_profile.py", **sizes, LONG=160, CHUNK=32, BESIDE=4, CONTEXT=16)
    name, result = bed.run(monkeypatch, script, tmp_path, "--shapes", "tiny")
    assert name == "stage2_profile_fake-h1-xl_DATE.json"
    assert list(result) == [*bed.PLACE, "stage", "rates_before", "shapes", "rates_after"]
    cases = result["shapes"][0]["cases"]
    assert [case["case"] for case in cases] == [*["decode"] * 2, "prefill", "w", "w", "chunks", "chunk", "chunk"]
    report = ["steps", "wall_us", "kernels_us", "idle_us", "launches", "kernels"]
    assert list(cases[1]) == ["case", "batch", "context", *report]
    assert cases[1]["wall_us"] > 0
    assert [row["tokens"] for row in cases[3]["steps"]][-1].startswith("up to ")
    assert cases[3]["seconds"] >= sum(row["seconds"] for row in cases[3]["steps"])
    assert len(cases[5]["ms"]) == 5
    assert [case["behind"] for case in cases[6:]] == [64, 64]
