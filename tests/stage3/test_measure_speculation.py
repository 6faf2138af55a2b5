"""The measurement of speculation, on a tiny model without a GPU: what is counted, not how fast it is."""

import json
from pathlib import Path

import pytest
import torch

from sixfold.exercises.importer import load_file
from stage3 import measured
from stage3.llm import LLM

bed = load_file(Path(__file__).parents[1] / "stage1" / "measure_bed.py")
script = load_file(Path(__file__).parents[2] / "stages" / "03_prefix_spec" / "measure_speculation.py")
PROMPTS = [[5, 6, 7, 8, 9] * 4 + [i] for i in range(6)]
TINY = {"model": "tiny", "load_format": "dummy", "dtype": "float32", "device": "cpu"}


@pytest.fixture
def arms(monkeypatch) -> list:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(script, "MAX_TOKENS", 12)
    monkeypatch.setattr(measured, "CACHE_BYTES", 32 << 20)
    made = [script.Arm(name, **TINY) for name in ("none", "ngram")]
    yield made
    for arm in made:
        arm.llm.core.shutdown()


def test_arms_do_the_same_work_and_drafts_are_counted(arms) -> None:
    runs = script.point(arms, PROMPTS, 1, [], rounds=2)
    assert [run["tokens"] for run in runs["none"] + runs["ngram"]] == [72] * 4
    ngram = runs["ngram"][0]
    assert ngram["drafts"] >= ngram["verifications"] > 0
    assert ngram["acceptance_length"] == pytest.approx(1 + sum(ngram["accepted_per_position"]), abs=1e-3)
    both = script.together([runs, runs])
    assert both["ngram"][1]["tokens"] == 144
    assert both["ngram"][1]["acceptance_length"] == pytest.approx(runs["ngram"][1]["acceptance_length"], abs=1e-3)
    rows = script.rows_of(both, "all", 1)
    assert [row["arm"] for row in rows] == ["none", "ngram"]
    assert rows[0]["speed_up"] == 1.0


def test_a_batch_is_kept_full_and_the_clock_stops_when_none_waits(arms, monkeypatch) -> None:
    core = arms[0].llm.core
    seen = []
    step = core.step
    monkeypatch.setattr(core, "step", lambda: (step(), seen.append(core.stats().num_running))[0])
    _, tokens = script.serve(core, PROMPTS, 3, [])
    assert max(seen) == 3
    assert 12 * 3 <= tokens < 72  # those that still run when the last one has joined are not timed to their end
    assert not core.has_work


def test_every_arm_is_a_valid_configuration() -> None:
    for config in script.ARMS.values():
        if config is not None and config["method"] == "ngram":
            with LLM(**TINY, max_model_len=64, speculative_config=config):
                pass


def test_it_writes_what_it_prints(monkeypatch, tmp_path, capsys) -> None:
    small = bed.load(monkeypatch, "03_prefix_spec/measure_speculation.py", MAX_TOKENS=3)
    monkeypatch.setattr(measured, "CACHE_BYTES", 64 << 20)
    monkeypatch.setattr(small, "held_out_prompts", lambda: {"one": ["Hello", "Not taken"], "two": ["1, 2, 3,"]})
    words = ["--arms", "none", "ngram", "--batches", "1", "4", "--rounds", "2", "--per-kind", "1"]
    name, result = bed.run(monkeypatch, small, tmp_path, *words)
    assert name == "stage3_speculation_fake-h1-xl_DATE.json"
    assert list(result) == [*bed.PLACE, "stage", "model", "arms", "rates_before", "rows", "rates_after"]
    plain, ngram = result["rows"][-2:]
    speeds = ["tok_s", "tok_s_min", "tok_s_max", "speed_up"]
    assert list(plain) == ["arm", "kind", "batch", "seconds", "tokens", *speeds]
    drafts = ["verifications", "drafts", "accepted_per_position", "acceptance_length"]
    assert list(ngram) == ["arm", "kind", "batch", "seconds", "tokens", "tok_s", *drafts, *speeds[1:]]
    assert (ngram["arm"], ngram["kind"], ngram["batch"]) == ("ngram", "all", 4)
    assert plain["tok_s_min"] <= plain["tok_s"] <= plain["tok_s_max"]
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [*result["rows"], bed.RATES]


def test_without_a_gpu_nothing_is_measured(monkeypatch) -> None:
    bed.without_a_gpu(monkeypatch, bed.load(monkeypatch, "03_prefix_spec/measure_speculation.py"))


def test_the_script_of_profiles(monkeypatch, tmp_path) -> None:
    small = bed.load(monkeypatch, "03_prefix_spec/measure_profile.py", BATCHES=(1, 2), CONTEXT=8, STEPS=2, WARM=4)
    monkeypatch.setattr(measured, "CACHE_BYTES", 64 << 20)
    name, result = bed.run(monkeypatch, small, tmp_path, "--arms", "none", "eagle")
    assert name == "stage3_profile_fake-h1-xl_DATE.json"
    assert [(case["arm"], case["batch"]) for case in result["cases"]] == [
        ("none", 1),
        ("none", 2),
        ("eagle", 1),
        ("eagle", 2),
    ]
    assert [case["tokens"] for case in result["cases"][:2]] == [1, 2]
    assert result["cases"][2]["tokens"] > 1, "drafts are verified in the step that is profiled"
