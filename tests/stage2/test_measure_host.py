"""The host's measurement, small: it measures what it says, and writes what it prints."""

import json
import math
import sys
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file


@pytest.fixture
def script(monkeypatch):
    script = load_file(Path(__file__).parents[2] / "stages/02_paged_kv/measure_host.py")
    for name, value in {"RUNNING": 5, "STEPS": 20, "POOLS": (50, 500), "TAKES": 3}.items():
        monkeypatch.setattr(script, name, value)
    return script


@pytest.mark.parametrize("settings", [{}, {"traced": True}, {"more": 30}, {"more": 30, "gate": True}])
def test_every_step_computes_a_token_of_each_running_request(script, settings):
    bench = script.Bench(num_steps=40, **settings)
    for _ in range(2):
        assert set(bench.round()) == {"schedule", "update", "step"}
        stats = bench._scheduler.stats()
        assert (stats.num_running, stats.scheduled_tokens) == (5, 5)
        assert stats.num_waiting == settings.get("more", 0)
        assert stats.preemptions == 0


def test_the_slope_tells_constant_from_proportional_times(script):
    for power in (0.0, 0.5, 1.0):
        times = {f"{size:,}": [3 * size**power] * 2 for size in script.POOLS}
        assert script.slope(times) == pytest.approx(power)


def test_ratios_compare_within_a_round(script):
    """A slow round of both is no difference."""
    steps = {"plain": {"step": [10.0, 100.0, 11.0]}, "other": {"step": [12.0, 120.0, 13.2]}}
    assert script.ratios(steps) == {"other": pytest.approx(1.2)}


def test_it_writes_what_it_prints(script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["measure_host.py", "--rounds", "2", "--out", str(tmp_path), "--commit", "abc"])
    script.main()
    (path,) = tmp_path.iterdir()
    result = json.loads(path.read_text())
    assert (result["commit"], result["rounds"], result["running"]) == ("abc", 2, 5)
    assert set(result["steps"]) == {"plain", *result["ratios"]}
    assert all(math.isfinite(value["median"]) for value in result["blocks"].values())
    assert "slope over the pool's size" in capsys.readouterr().out
