"""Measure what the prefix cache costs the host where nothing is ever found in it, without a model or a GPU.

    python stages/03_prefix_spec/measure_prefix_host.py --out stages/06_benchmark/results

The same work without the cache, with it, and without it again, so that the noise is known. The three take turns; what
is added is the median over rounds of the difference within a round, and the first round is not counted.

    decode     256 requests decode, 16 of them fill a block in each step: µs a step, planned and read, and what is added
               by the block that was filled
    prompts    32 prompts of 4,000 tokens in a pool of just their blocks, so that what the last round left is forgotten:
               µs a block, by what the scheduler asks for
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from stage1.interfaces import KVCacheManager, Scheduler
from stage1.lifecycle import Lifecycle
from stage1.measuring import host_provenance, rounded_spread, turned, write_result
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput
from stage1.request import Request, Status
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import FcfsQueue
from stage3.prefix.kv_manager import PrefixKVManager
from stage3.prefix.scheduler import PrefixScheduler

ARMS = ("without", "with", "without_again")
BLOCK_SIZE, MAX_ID = 16, 150_000
RUNNING, PROMPT = 256, 64  # requests that decode, and tokens of the shortest prompt
STEPS = 50  # of each arm in a round
PROMPTS, LENGTH = 32, 4000
PARAMS = SamplingParams(max_tokens=None, ignore_eos=True)

Figures = dict[str, float]  # what was measured → microseconds


class Load(Protocol):
    """What one arm does in a round."""

    def round(self) -> Figures:
        """Do it once, and say how long it took."""


class Decode:
    """A scheduler with ``RUNNING`` requests. Their lengths are spread over a block: as many fill one in each step."""

    def __init__(self, arm: str, num_steps: int) -> None:
        self._rng = random.Random(arm)
        longest = PROMPT + BLOCK_SIZE + num_steps + 1
        pool = BlockPool(RUNNING * (longest // BLOCK_SIZE + 1))
        prefix = PrefixKVManager(pool, BLOCK_SIZE) if arm == "with" else None
        kv: KVCacheManager = prefix or PagedKVManager(pool, BLOCK_SIZE)
        limits = BatchConfig(max_num_seqs=RUNNING, max_num_batched_tokens=RUNNING * (PROMPT + BLOCK_SIZE))
        plain = ContinuousScheduler(Lifecycle(kv, longest + 1), kv, limits, FcfsQueue())
        self.scheduler: Scheduler = PrefixScheduler(plain, prefix) if prefix else plain
        for i in range(RUNNING):
            prompt = some_tokens(self._rng, PROMPT + i % BLOCK_SIZE)
            self.scheduler.add(EngineCoreRequest(f"request-{i}", prompt, PARAMS))

    def round(self) -> Figures:
        """The median of ``STEPS`` steps."""
        times = []
        for _ in range(STEPS):
            start = time.perf_counter()
            plan = self.scheduler.schedule()
            planned = time.perf_counter() - start
            out = ModelRunnerOutput(list(plan.num_scheduled), [some_tokens(self._rng, 1) for _ in plan.num_scheduled])
            start = time.perf_counter()
            self.scheduler.update(plan, out)
            times.append(planned + time.perf_counter() - start)
        step = statistics.median(times) * 1e6
        return {"step": step, "block": step / (RUNNING / BLOCK_SIZE)}


class Prefill:
    """A KV manager that is asked for ``PROMPTS`` other prompts in each round, and has room for just these."""

    def __init__(self, arm: str) -> None:
        self.num_blocks = PROMPTS * (LENGTH // BLOCK_SIZE)
        self.kv = (PrefixKVManager if arm == "with" else PagedKVManager)(BlockPool(self.num_blocks), BLOCK_SIZE)
        self._rng = random.Random(arm)

    def round(self) -> Figures:
        """Each question for all prompts, one after the other: of each the median prompt's, and all of these."""
        requests = [Request(f"{i}", some_tokens(self._rng, LENGTH), PARAMS, 2 * LENGTH) for i in range(PROMPTS)]
        times = {}

        def timed(name: str, ask: Callable[[Request], object]) -> None:
            taken = []
            for req in requests:
                start = time.perf_counter()
                ask(req)
                taken.append(time.perf_counter() - start)
            times[name] = statistics.median(taken) / (LENGTH // BLOCK_SIZE) * 1e6

        def admit(req: Request) -> None:
            self.kv.adopt(req, self.kv.lookup(req))
            assert self.kv.allocate_slots(req, LENGTH) is not None

        timed("admit", admit)
        for req in requests:
            req.num_computed_tokens, req.output_ids = LENGTH, [1]
        timed("commit", self.kv.commit)
        for req in requests:
            req.status = Status.LENGTH
        timed("free", self.kv.free)
        return {**times, "all": sum(times.values())}


def some_tokens(rng: random.Random, count: int) -> list[int]:
    """Random token ids."""
    return [rng.randrange(MAX_ID) for _ in range(count)]


def take_turns(loads: Mapping[str, Load], num_rounds: int) -> dict[str, Any]:
    """Of each arm all figures, and by how much they lie above those of the first arm."""
    rounds: dict[str, list[Figures]] = {arm: [] for arm in loads}
    for number in range(num_rounds + 1):
        for arm in turned(list(loads), number):
            rounds[arm].append(loads[arm].round())

    def above(arm: str) -> list[Figures]:
        pairs = zip(rounds[arm], rounds["without"], strict=True)
        return [{name: row[name] - plain[name] for name in row} for row, plain in pairs]

    rows = {**rounds, "added": above("with"), "noise": above("without_again")}
    return {
        label: {name: rounded_spread([row[name] for row in found[1:]]) for name in found[0]}
        for label, found in rows.items()
    }


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{result['cpu']}, Python {result['python']}, {result['rounds']} rounds; µs, median (min to max)"]
    for load in ("decode", "prompts"):
        for label, figures in result[load].items():
            shown = [f"{name} {v['median']:7.2f} ({v['min']:.2f} to {v['max']:.2f})" for name, v in figures.items()]
            lines.append(f"{load:8} {label:14} " + "   ".join(shown))
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("stages/06_benchmark/results"), help="folder of the JSON file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--commit", help="what is measured; asked of git by default")
    parser.add_argument("--name", default="cpu", help="of the machine, for the name of the file")
    args = parser.parse_args()
    num_steps = (args.rounds + 1) * STEPS
    result: dict[str, Any] = {
        **host_provenance(args.commit),
        "running": RUNNING,
        "prompts_tokens": [PROMPTS, LENGTH],
        "rounds": args.rounds,
        "unit": "microseconds",
        "decode": take_turns({arm: Decode(arm, num_steps) for arm in ARMS}, args.rounds),
        "prompts": take_turns({arm: Prefill(arm) for arm in ARMS}, args.rounds),
    }
    path = write_result(args.out, "stage3_prefix_host", result, args.name)
    print(table(result))
    print(path)


if __name__ == "__main__":
    main()
