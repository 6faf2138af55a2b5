"""The measurement of the prefix cache's host part, small: both loads do what they say, and no arm finds anything."""

import json
import math
import sys
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file


@pytest.fixture
def script(monkeypatch):
    script = load_file(Path(__file__).parents[2] / "stages/03_prefix_spec/measure_prefix_host.py")
    for name, value in {"RUNNING": 32, "STEPS": 20, "PROMPTS": 3, "LENGTH": 64}.items():
        monkeypatch.setattr(script, name, value)
    return script


@pytest.mark.parametrize("arm", ["with", "without"])
def test_in_each_step_all_decode_and_as_many_fill_a_block(script, arm):
    load = script.Decode(arm, num_steps=60)
    load.round()
    before = load.scheduler.stats()
    taken = []
    for _ in range(2):
        for _ in range(script.BLOCK_SIZE):
            plan = load.scheduler.schedule()
            taken.append(len(plan.cached.new_block_ids))
            out = script.ModelRunnerOutput(list(plan.num_scheduled), [[5]] * len(plan.num_scheduled))
            load.scheduler.update(plan, out)
    stats = load.scheduler.stats()
    assert set(taken) == {script.RUNNING // script.BLOCK_SIZE}
    assert (stats.num_running, stats.scheduled_tokens, stats.prefix_hits) == (32, 32, 0)
    assert stats.prefix_queries == before.prefix_queries
    assert (stats.prefix_queries > 0) is (arm == "with")


def test_each_round_of_prompts_forgets_the_round_before(script):
    load = script.Prefill("with")
    seen = []
    for _ in range(3):
        assert set(load.round()) == {"admit", "commit", "free", "all"}
        assert load.kv.usage == 0.0
        pool = load.kv._pool
        seen.append({pool.key_of(block) for block in pool.cached_blocks()})
    assert [len(keys) for keys in seen] == [load.num_blocks] * 3
    assert not seen[0] & seen[1] | seen[1] & seen[2]
    assert load.kv.num_hit_tokens == 0


def test_what_is_added_is_compared_within_a_round(script):
    """A slow round of all arms is no difference; the first one does not count."""

    class Slow:
        def __init__(self, more):
            self.times = [time + more for time in (900.0, 10.0, 100.0, 11.0)]

        def round(self):
            return {"step": self.times.pop(0)}

    found = script.take_turns({"without": Slow(0.0), "with": Slow(2.0), "without_again": Slow(0.5)}, 3)
    assert found["without"]["step"] == {"median": 11.0, "min": 10.0, "max": 100.0}
    assert found["added"]["step"] == {"median": 2.0, "min": 2.0, "max": 2.0}
    assert found["noise"]["step"]["median"] == 0.5


def test_it_writes_what_it_prints(script, monkeypatch, tmp_path, capsys):
    arguments = ["--rounds", "2", "--out", str(tmp_path), "--commit", "abc"]
    monkeypatch.setattr(sys, "argv", ["measure_prefix_host.py", *arguments])
    script.main()
    (path,) = tmp_path.iterdir()
    result = json.loads(path.read_text())
    assert (result["commit"], result["rounds"], result["running"]) == ("abc", 2, 32)
    for load in ("decode", "prompts"):
        assert set(result[load]) == {*script.ARMS, "added", "noise"}
        assert all(math.isfinite(v["median"]) for found in result[load].values() for v in found.values())
    assert "prompts  added" in capsys.readouterr().out
