"""Measure the prefix cache on a GPU: the time to the first token on a hit, and what the cache costs who never has one.

    python stages/03_prefix_spec/measure_prefix.py --out stages/06_benchmark/results

Weights are random, prompts are token ids, EOS is ignored. A hit: 16,384 tokens were computed for another request, 64
are new. The cost: two engines side by side, with the cache and without it, get the same requests in turn, of which no
two begin alike; the one without runs twice in each round, so that the noise is known. Loading, capturing graphs and
warming up are outside the clock. The result is one JSON file with GPU, versions, commit and date.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stage1 import workloads
from stage1.core import EngineCore
from stage1.measuring import device_rates, free_memory, provenance, require_gpu, timed, turned, write_result
from stage1.workloads import add_requests, finish, random_prompts
from stage2.measured import BUDGET
from stage3 import build as wiring

SHARED, NEW = 16_384, 64  # tokens
PAIRS = 5  # of a cold request and a hit
ROUNDS = 3
LOADS = {  # name → requests, tokens of each prompt, tokens of each output
    "decode_heavy": (256, 64, 256),
    "prefill_heavy": (32, 4000, 1),
}
CACHE_BYTES = 24 << 30  # of each of the two engines: the second round of long prompts has to forget the first one's
ARMS = ("without", "with", "without_again")


def make_core(shape: str, **settings: Any) -> EngineCore:
    """This stage's engine with random weights and 256 seats."""
    return workloads.make_core(wiring, shape, **{"max_num_batched_tokens": BUDGET, **settings})


def serve(core: EngineCore, prompts: list[list[int]], num_outputs: int) -> float:
    """Milliseconds from the arrival of all ``prompts`` to the last of ``num_outputs`` tokens each, greedy."""

    def run() -> None:
        add_requests(core, prompts, [num_outputs] * len(prompts), temperature=0.0)
        finish(core)

    return timed(run)


def first_token(core: EngineCore, prompt: list[int], found: int) -> float:
    """Milliseconds from the arrival of ``prompt`` to its first token.

    Raises:
        RuntimeError: other than ``found`` of its tokens were in the cache, so that it is not what is measured.
    """
    before = core.stats().prefix_hits
    milliseconds = serve(core, [prompt], 1)
    hit = core.stats().prefix_hits - before
    if hit != found:
        raise RuntimeError(f"{hit:,} of {len(prompt):,} tokens were found in the cache, not {found:,}")
    return milliseconds


def time_to_first_token(core: EngineCore) -> dict[str, Any]:
    """``PAIRS`` times a prompt that nothing is known of, then one with the same beginning; medians and their ratio."""
    cold, hit = [], []
    for pair in range(PAIRS + 1):  # the first one warms up
        shared = random_prompts(1, SHARED, seed=pair)[0]
        one, two = random_prompts(2, NEW, seed=pair)
        cold.append(first_token(core, shared + one, found=0))
        hit.append(first_token(core, shared + two, found=SHARED))
    return {
        "shared_tokens": SHARED,
        "new_tokens": NEW,
        "pairs": PAIRS,
        "cold_ms": statistics.median(cold[1:]),
        "hit_ms": statistics.median(hit[1:]),
        "hit_ms_max": max(hit[1:]),
        "ratio": statistics.median(cold[1:]) / statistics.median(hit[1:]),
    }


def without_hits(cores: dict[str, EngineCore], load: str) -> dict[str, Any]:
    """One load on both engines in turn: medians in ms, and by how much an arm is slower than the one without a cache.

    Raises:
        RuntimeError: something was found in the cache.
    """
    count, length, num_outputs = LOADS[load]
    times: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for number in range(ROUNDS + 1):  # the first one warms up
        for arm in turned(ARMS, number):
            # The engine without a cache runs twice, but no engine may see a prompt for the second time.
            prompts = random_prompts(count, length, seed=(number, arm == "without_again"))
            times[arm].append(serve(cores["with" if arm == "with" else "without"], prompts, num_outputs))
    if hits := cores["with"].stats().prefix_hits:
        raise RuntimeError(f"{hits:,} tokens were found in the cache: prompts began alike")
    medians = {arm: statistics.median(found[1:]) for arm, found in times.items()}
    rows = list(zip(*(times[arm][1:] for arm in ARMS), strict=True))
    return {
        "load": load,
        "rounds": ROUNDS,
        **{f"{arm}_ms": median for arm, median in medians.items()},
        "loss": statistics.median(cached / plain - 1 for plain, cached, _ in rows),
        "noise": statistics.median(again / plain - 1 for plain, _, again in rows),
    }


def measure_loss(shape: str, loads: Sequence[str] = tuple(LOADS), **settings: Any) -> dict[str, Any]:
    """Some loads for one shape, the two engines beside each other."""
    sizes = {"max_model_len": 4608, "kv_cache_memory_bytes": CACHE_BYTES, **settings}
    cores = {
        name: make_core(shape, enable_prefix_caching=on, **sizes) for name, on in (("with", True), ("without", False))
    }
    found = {"shape": shape, "loads": [without_hits(cores, load) for load in loads]}
    for core in cores.values():
        core.shutdown()
    return found


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hit", nargs="*", default=["qwen3-8b"], help="shapes of the time to the first token")
    parser.add_argument("--loss", nargs="*", default=["qwen3-0.6b", "qwen3-8b"], help="shapes of the cost")
    parser.add_argument("--loads", nargs="+", default=list(LOADS), choices=list(LOADS), help="of the cost")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    require_gpu()
    result = {**provenance(args.commit), "stage": 3, "rates_before": device_rates()}
    result |= {"first_token": [], "without_hits": []}
    for shape in args.hit:
        core = make_core(shape, max_model_len=SHARED + NEW + 64)
        result["first_token"].append({"shape": shape, **time_to_first_token(core)})
        core.shutdown()
        del core
        print(json.dumps(result["first_token"][-1]), flush=True)
    for shape in args.loss:
        free_memory()
        result["without_hits"].append(measure_loss(shape, args.loads))
        print(json.dumps(result["without_hits"][-1]), flush=True)
    free_memory()
    result["rates_after"] = device_rates()
    if args.out is not None:
        print(write_result(args.out, "stage3_prefix", result))


if __name__ == "__main__":
    main()
