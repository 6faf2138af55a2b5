"""What the measuring scripts share, with a GPU that is faked; and stage 1's script from its words to its file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sixfold.exercises.importer import load_file
from stage1 import build, measuring, workloads

bed = load_file(Path(__file__).parent / "measure_bed.py")
SCRIPTS = sorted(bed.STAGES.glob("0?_*/measure*.py"))
REAL_RANDN = torch.randn


def test_rates_are_bytes_and_operations_over_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    bed.fake_gpu(monkeypatch)
    made: list[tuple[tuple[int, ...], dict[str, Any]]] = []

    def randn(*size: int, **options: Any) -> torch.Tensor:
        made.append((size, options))
        return REAL_RANDN(*size)

    medians: list[int] = []

    def median_ms(run: Any, repeats: int) -> float:
        run()
        medians.append(repeats)
        return 2.0 ** len(medians)

    monkeypatch.setattr(torch, "randn", randn)
    monkeypatch.setattr(measuring, "median_ms", median_ms)
    monkeypatch.setattr(measuring, "MATMUL", 8)
    found = measuring.device_rates(1000)
    assert found == {"read_tb_s": 4000 / 2e9, "copy_tb_s": 8000 / 4e9, "matmul_tflop_s": 1024 / 8e9}
    assert list(found) == ["read_tb_s", "copy_tb_s", "matmul_tflop_s"]
    matrix = ((8, 8), {"device": "cuda", "dtype": torch.bfloat16})
    assert made == [((1000,), {"device": "cuda"}), matrix, matrix]
    assert medians == [10, 10, 10]
    assert measuring.STREAM_NUMBERS * 4 == 4 << 30


def test_a_median_is_of_events_around_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bed.fake_gpu(monkeypatch)
    times, calls = [5.0, 1.0, 2.0], []
    monkeypatch.setattr(bed.HostEvent, "elapsed_time", lambda self, end: times[len(calls) - 1])
    assert measuring.median_ms(lambda: calls.append(1), 3) == 2.0
    assert len(calls) == 3


def test_the_wall_clock_waits_for_the_device_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("wait"))
    assert measuring.timed(lambda: order.append("run")) > 0
    assert order == ["wait", "run", "wait"]


def test_spreads() -> None:
    runs = [{"ms": 3.0, "row": 0.0}, {"ms": 1.0, "row": 1.0}, {"ms": 2.0, "row": 2.0}]
    assert measuring.spread(runs, "ms") == {"ms": 2.0, "row": 2.0, "ms_min": 1.0, "ms_max": 3.0, "rounds": 3}
    assert measuring.spread_of((4.0, 1.0), "us") == {"us": 2.5, "us_min": 1.0, "us_max": 4.0}
    assert measuring.rounded_spread([1.234, 2.0, 9.876]) == {"median": 2.0, "min": 1.23, "max": 9.88}
    assert [measuring.turned("abc", number) for number in (0, 1, 5)] == [list("abc"), list("bca"), list("cab")]


def test_provenance_names_the_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bed.fake_gpu(monkeypatch)
    found = measuring.provenance("abc")
    assert list(found) == bed.PLACE
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", found["date"])
    assert (found["commit"], found["gpu"], found["torch"]) == ("abc", "Fake H1 XL", torch.__version__)
    json.dumps(found)
    assert list(measuring.provenance("abc", ("torch",))) == [*bed.PLACE[:5], "dtype"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    assert measuring.provenance(None)["commit"] == measuring.host_provenance(None)["commit"] == "unknown"
    host = measuring.host_provenance("abc")
    assert list(host) == ["date", "commit", "cpu", "cores", "python"]
    assert host["cpu"]


def test_a_commit_with_local_changes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"rev-parse": "abc", "status": " M stages/a.py"}
    monkeypatch.setattr(measuring, "_git", lambda *words: said[words[0]])
    assert measuring.git_commit() == "abc with local changes"
    assert measuring.provenance.__defaults__ == (measuring.LIBRARIES,)
    said["status"] = ""
    assert measuring.git_commit() == "abc"


def test_a_result_is_named_after_its_machine_and_date(tmp_path: Path) -> None:
    result = {"date": "2026-01-02T03:04:05+00:00", "gpu": "NVIDIA H200 NVL", "n": [1]}
    path = measuring.write_result(tmp_path / "a" / "b", "stage2_engine", result)
    assert path == tmp_path / "a" / "b" / "stage2_engine_nvidia-h200-nvl_2026-01-02.json"
    assert path.read_text() == json.dumps(result, indent=2) + "\n"
    again = measuring.write_result(tmp_path, "stage2_host", {"date": result["date"]}, "My CPU")
    assert again.name == "stage2_host_My CPU_2026-01-02.json"


def test_the_shared_modules_need_neither_triton_nor_transformers() -> None:
    hide = "import sys; sys.path[:0] = sys.argv[1:]; sys.modules['triton'] = sys.modules['transformers'] = None; "
    command = [sys.executable, "-c", hide + "import stage1.measuring, stage1.workloads", *sys.path]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_script_loads_another_or_repeats_what_is_shared(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "importlib.util" not in text
    assert not re.search(r"^(from|import) measure", text, re.MULTILINE)
    assert not re.search(
        r"^def (device_rates|provenance|spread|median_ms|timed|finish)\(|write_text", text, re.MULTILINE
    )


def test_decode_steps_and_w_on_a_tiny_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    bed.fake_gpu(monkeypatch)
    bed.small_workloads(monkeypatch)
    core = workloads.make_core(build, "tiny", **workloads.SIZES)
    steps: list[int] = []
    step = core.step
    monkeypatch.setattr(core, "step", lambda: (step(), steps.append(core.stats().scheduled_tokens))[0])
    found = workloads.decode_step(core, 3)
    assert (found["batch"], found["context"]) == (3, 8)
    assert found["tok_s"] == pytest.approx(3e3 / found["wall_ms"])
    assert steps[:2] == [24, 3]
    assert not core.has_work
    run = workloads.workload(core)
    assert run["output_tok_s"] == pytest.approx(run["output_tokens"] / run["seconds"])
    assert run["mean_rows"] == pytest.approx(run["output_tokens"] / run["steps"])
    core.shutdown()


def test_prompts_are_the_same_in_every_run_and_others_for_each_seed() -> None:
    first = workloads.random_prompts(2, 5)
    assert first == workloads.random_prompts(2, 5) == workloads.random_prompts(2, 5, seed=0)
    assert first[0] == [5682, 6276, 9984, 4228, 9373]  # results that are kept were measured with these
    assert workloads.random_prompts(2, 5, seed=(1, True))[0][:3] == [2454, 4645, 6289]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_script_writes_what_it_prints(
    stage: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.small_workloads(monkeypatch)
    small = {"SIZES": workloads.SIZES, "DECODE_BATCHES": (1, 3), "ROUNDS": 2}
    script = bed.load(monkeypatch, "01_single_gpu/measure.py", **small)
    name, result = bed.run(monkeypatch, script, tmp_path, "--stage", str(stage), "--shapes", "tiny")
    assert name == f"stage{stage}_fake-h1-xl_DATE.json"
    assert list(result) == [*bed.PLACE, "rates_before", "shapes", "rates_after"]
    (shape,) = result["shapes"]
    assert list(shape) == ["stage", "shape", "max_num_seqs", "decode", "workload_w"]
    assert [row["batch"] for row in shape["decode"]] == [1, 3]
    assert {"wall_ms", "wall_ms_min", "wall_ms_max", "rounds"} <= set(shape["decode"][0])
    assert {"output_tok_s_min", "output_tok_s_max"} <= set(shape["workload_w"])
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines[:3]] == [shape, bed.RATES, bed.RATES]
    assert lines[3].startswith(str(tmp_path))


def test_without_a_gpu_the_script_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bed.without_a_gpu(monkeypatch, bed.load(monkeypatch, "01_single_gpu/measure.py"))
