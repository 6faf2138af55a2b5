"""The prefix cache's measurement, small and on the CPU: it measures what it says, and refuses what it does not."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.exercises.importer import load_file
from stage1 import workloads

bed = load_file(Path(__file__).parents[1] / "stage1" / "measure_bed.py")
TINY: dict[str, Any] = {"dtype": "float32", "device": "cpu", "num_gpu_blocks_override": 40, "max_model_len": 128}


def wall(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    script = load_file(Path(__file__).parents[2] / "stages/03_prefix_spec/measure_prefix.py")
    small = {"SHARED": 64, "NEW": 5, "PAIRS": 2, "ROUNDS": 2, "CACHE_BYTES": 1 << 20}
    small["LOADS"] = {"decode_heavy": (3, 20, 4), "prefill_heavy": (2, 60, 1)}
    for name, value in small.items():
        monkeypatch.setattr(script, name, value)
    monkeypatch.setattr(script, "timed", wall)
    monkeypatch.setattr(workloads, "MAX_ID", 250)
    return script


def test_hits_are_hits_and_cold_is_cold(script: Any) -> None:
    core = script.make_core("tiny", **TINY)
    found = script.time_to_first_token(core)
    assert core.stats().prefix_hits == (script.PAIRS + 1) * script.SHARED
    assert found["ratio"] == pytest.approx(found["cold_ms"] / found["hit_ms"])
    with pytest.raises(RuntimeError, match="64 of 69 tokens were found in the cache, not 0"):
        script.first_token(core, script.random_prompts(1, 64, seed=0)[0] + [1, 2, 3, 4, 5], found=0)
    core.shutdown()


def test_no_engine_sees_a_prompt_twice_and_both_see_the_same(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, list[list[int]]]] = []
    serve = script.serve
    monkeypatch.setattr(script, "serve", lambda core, *rest: seen.append((core, rest[0])) or serve(core, *rest))
    found = script.measure_loss("tiny", **TINY)
    assert [load["load"] for load in found["loads"]] == ["decode_heavy", "prefill_heavy"]
    cores = {id(core): [tuple(p) for c, prompts in seen if c is core for p in prompts] for core, _ in seen}
    assert len(cores) == 2
    fewer, more = sorted(cores.values(), key=len)
    assert len(more) == 2 * len(fewer)
    assert (len(set(fewer)), len(set(more))) == (len(fewer), len(more))
    assert set(fewer) <= set(more)


def test_loss_compares_within_a_round(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow round of all arms is no difference; the warm-up does not count."""
    monkeypatch.setattr(script, "ROUNDS", 3)
    cores = {name: script.make_core("tiny", **TINY) for name in ("with", "without")}
    slow = {0: 50.0, 1: 1.0, 2: 10.0, 3: 1.1}
    calls: list[Any] = []

    def served(core: Any, prompts: list[list[int]], num_outputs: int) -> float:
        calls.append(core)
        scale = slow[(len(calls) - 1) // 3]
        return scale * (1.2 if core is cores["with"] else 1.0)

    monkeypatch.setattr(script, "serve", served)
    found = script.without_hits(cores, "decode_heavy")
    assert found["loss"] == pytest.approx(0.2)
    assert found["noise"] == pytest.approx(0.0)
    assert found["with_ms"] == pytest.approx(1.2 * statistics.median((1.0, 10.0, 1.1)))
    first = [calls[3 * number] is cores["with"] for number in range(4)]
    assert first == [False, True, False, False]  # arms take turns in beginning
    for core in cores.values():
        core.shutdown()


def test_hits_among_prompts_that_should_have_none_are_refused(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "random_prompts", lambda count, length, seed=0: [[7] * length] * count)
    with pytest.raises(RuntimeError, match="prompts began alike"):
        script.measure_loss("tiny", **TINY)


def test_it_writes_what_it_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loads = {"decode_heavy": (3, 20, 4), "prefill_heavy": (2, 60, 1)}
    sizes: dict[str, Any] = {"SHARED": 64, "NEW": 5, "PAIRS": 1, "ROUNDS": 1, "CACHE_BYTES": 1 << 22, "LOADS": loads}
    script = bed.load(monkeypatch, "03_prefix_spec/measure_prefix.py", **sizes)
    bed.small_workloads(monkeypatch)
    measure_loss = script.measure_loss
    monkeypatch.setattr(script, "measure_loss", lambda shape, loads: measure_loss(shape, loads, max_model_len=128))
    name, result = bed.run(monkeypatch, script, tmp_path, "--hit", "tiny", "--loss", "tiny", "tiny")
    assert name == "stage3_prefix_fake-h1-xl_DATE.json"
    assert list(result) == [*bed.PLACE, "stage", "rates_before", "first_token", "without_hits", "rates_after"]
    keys = ["shape", "shared_tokens", "new_tokens", "pairs", "cold_ms", "hit_ms", "hit_ms_max", "ratio"]
    assert [list(row) for row in result["first_token"]] == [keys]
    assert [row["shape"] for row in result["without_hits"]] == ["tiny", "tiny"]
    arms = ["without_ms", "with_ms", "without_again_ms"]
    assert list(result["without_hits"][0]["loads"][0]) == ["load", "rounds", *arms, "loss", "noise"]


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    bed.without_a_gpu(monkeypatch, bed.load(monkeypatch, "03_prefix_spec/measure_prefix.py"))
