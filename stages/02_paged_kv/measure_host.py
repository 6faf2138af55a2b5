"""Measure what a step costs the host: planning it and reading its result, without a model or a GPU.

    python stages/02_paged_kv/measure_host.py --out stages/06_benchmark/results

Schedulers with 256 decoding requests take turns, a batch of steps each a round, so that whatever slows the machine
down meets all of them; the first round is not counted. A figure is the median over rounds of the median step.

    plain     no hook, no trace                      traced    with the events of a live feed
    waiting   1,000 or 10,000 more in the queue      parked    10,000 more, held back by a hook
    blocks    one request takes 8 blocks and gives them back, in pools of 1,000 to 1,000,000
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stage1.interfaces import KVCacheManager, SchedulerHook
from stage1.lifecycle import Lifecycle
from stage1.measuring import host_provenance, rounded_spread, turned, write_result
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage1.request import Request
from stage1.trace.sinks import LiveFeed
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import Tracer, start_event
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue

RUNNING, PROMPT, BLOCK_SIZE = 256, 40, 16
STEPS = 50  # of each scheduler in a round
PARAMS = SamplingParams(max_tokens=None, ignore_eos=True, eos_token_ids=[2])
POOLS = (1_000, 10_000, 100_000, 1_000_000)
TAKES = 200  # of eight blocks, in a round

Times = dict[str, list[float]]  # what was measured → microseconds, one a round


class Gate:
    """A hook that holds back every request behind the first ``RUNNING``."""

    def __init__(self) -> None:
        self._admitted = 0

    def admit(self, req: Request) -> bool:
        """The first ones alone."""
        self._admitted += 1
        return self._admitted <= RUNNING

    def released(self) -> Sequence[str]:
        """Nobody."""
        return ()

    def annotate(self, plan: SchedulerOutput) -> None:
        """Nothing."""

    def on_result(self, plan: SchedulerOutput, out: ModelRunnerOutput) -> None:
        """Nothing."""

    def on_finish(self, req: Request) -> bool:
        """Keep nothing."""
        return False


class Bench:
    """A scheduler with ``RUNNING`` decoding requests and ``more`` behind them."""

    def __init__(self, num_steps: int, more: int = 0, gate: bool = False, traced: bool = False) -> None:
        length = PROMPT + num_steps + 1
        pool = BlockPool(RUNNING * (length // BLOCK_SIZE + 1))
        kv: KVCacheManager = PagedKVManager(pool, BLOCK_SIZE)
        hooks: list[SchedulerHook] = [Gate()] if gate else []
        if traced:
            tracer = Tracer([LiveFeed()])
            tracer.start(start_event(2, "none", BLOCK_SIZE, pool.num_blocks, RUNNING))
            kv = TracedKV(kv, tracer)
            hooks.append(tracer)
        limits = BatchConfig(max_num_seqs=RUNNING, max_num_batched_tokens=RUNNING * PROMPT)
        self._scheduler = ContinuousScheduler(Lifecycle(kv, length + 1, hooks), kv, limits, FcfsQueue())
        for i in range(RUNNING + more):
            self._scheduler.add(EngineCoreRequest(f"request-{i}", [1] * PROMPT, PARAMS))

    def round(self) -> dict[str, float]:
        """Microseconds of the median of ``STEPS`` steps."""
        planned, read = [], []
        for _ in range(STEPS):
            start = time.perf_counter()
            plan = self._scheduler.schedule()
            planned.append(time.perf_counter() - start)
            out = ModelRunnerOutput(list(plan.num_scheduled), [[5] for _ in plan.num_scheduled])
            start = time.perf_counter()
            self._scheduler.update(plan, out)
            read.append(time.perf_counter() - start)
        both = [a + b for a, b in zip(planned, read, strict=True)]
        named = {"schedule": planned, "update": read, "step": both}
        return {name: statistics.median(values) * 1e6 for name, values in named.items()}


def measure_steps(num_rounds: int) -> dict[str, Times]:
    """The step of each scheduler, by name."""
    num_steps = (num_rounds + 1) * STEPS
    makers: dict[str, Callable[[], Bench]] = {
        "plain": lambda: Bench(num_steps),
        "traced": lambda: Bench(num_steps, traced=True),
        "plain again": lambda: Bench(num_steps),  # how far two equal ones lie apart
        "1,000 waiting": lambda: Bench(num_steps, more=1_000),
        "10,000 waiting": lambda: Bench(num_steps, more=10_000),
        "10,000 parked": lambda: Bench(num_steps, more=10_000, gate=True),
    }
    benches = {name: make() for name, make in makers.items()}
    times: dict[str, Times] = {name: {"schedule": [], "update": [], "step": []} for name in benches}
    for number in range(num_rounds + 1):
        for name in turned(list(benches), number):
            for part, value in benches[name].round().items():
                if number:
                    times[name][part].append(value)
    return times


def measure_blocks(num_rounds: int) -> Times:
    """Taking and giving back eight blocks, by the size of the pool."""
    managers = {size: PagedKVManager(BlockPool(size), BLOCK_SIZE) for size in POOLS}
    req = Request("one", [1] * PROMPT, PARAMS, 10_000)
    times: Times = {f"{size:,}": [] for size in POOLS}
    for number in range(num_rounds + 1):
        for size in turned(list(managers), number):
            kv = managers[size]
            start = time.perf_counter()
            for _ in range(TAKES):
                kv.allocate_slots(req, 8 * BLOCK_SIZE)
                kv.free(req)
            if number:
                times[f"{size:,}"].append((time.perf_counter() - start) / TAKES * 1e6)
    return times


def slope(times: Times) -> float:
    """Of the line through (log blocks, log microseconds): 0 = independent of the pool, 1 = proportional to it."""
    x = [math.log(size) for size in POOLS]
    y = [math.log(statistics.median(times[f"{size:,}"])) for size in POOLS]
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def ratios(steps: dict[str, Times]) -> dict[str, float]:
    """How much longer than the plain one each step takes: the median over rounds of the ratio within a round."""
    plain = steps["plain"]["step"]
    return {
        name: round(statistics.median(a / b for a, b in zip(times["step"], plain, strict=True)), 3)
        for name, times in steps.items()
        if name != "plain"
    }


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{result['cpu']}, Python {result['python']}, {result['rounds']} rounds; µs, median (min to max)"]
    for name, parts in result["steps"].items():
        shown = [f"{part} {v['median']:6.1f} ({v['min']:.1f} to {v['max']:.1f})" for part, v in parts.items()]
        lines.append(f"{name:15} " + "   ".join(shown))
    lines += [f"{name:15} takes {ratio:.3f} of the plain step" for name, ratio in result["ratios"].items()]
    lines += [f"pool of {size:>9} blocks: {v['median']:.2f}" for size, v in result["blocks"].items()]
    return "\n".join([*lines, f"slope over the pool's size: {result['slope']:.4f}"])


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("stages/06_benchmark/results"), help="folder of the JSON file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--commit", help="what is measured; asked of git by default")
    parser.add_argument("--name", default="cpu", help="of the machine, for the name of the file")
    args = parser.parse_args()
    steps, blocks = measure_steps(args.rounds), measure_blocks(args.rounds)
    result: dict[str, Any] = {
        **host_provenance(args.commit),
        "running": RUNNING,
        "rounds": args.rounds,
        "unit": "microseconds",
        "steps": {name: {part: rounded_spread(v) for part, v in times.items()} for name, times in steps.items()},
        "ratios": ratios(steps),
        "blocks": {size: rounded_spread(values) for size, values in blocks.items()},
        "slope": round(slope(blocks), 4),
    }
    path = write_result(args.out, "stage2_host", result, args.name)
    print(table(result))
    print(path)


if __name__ == "__main__":
    main()
