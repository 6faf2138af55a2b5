"""A whole scheduler in a small cache, with the learner's preemption in it: its plans, its queue, its tokens."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage1.request import Status
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import QUEUES

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
BUDGET = 32
MOST_STEPS = 120


def cases(rng: random.Random) -> list[Case]:
    """From two requests to a crowd, first come first served and by priority, one and two steps in flight."""

    def case(name: str, words: str, *requests: Any, blocks: int, block_size: int = 4, seats: int = 2,
             policy: str = "fcfs", depth: int = 1) -> Case:  # fmt: skip
        sizes = {"num_blocks": blocks, "block_size": block_size, "seats": seats}
        return Case(name, words, {**sizes, "policy": policy, "steps_in_flight": depth, "requests": list(requests)})

    def crowd(count: int) -> list[Any]:
        return [(rng.randint(1, 6), f"r{i}", rng.randint(1, 8), rng.randint(1, 9), rng.randint(-2, 2))
                for i in range(count)]  # fmt: skip

    return [
        case("two requests", "b came last: it gives all of its blocks, and starts over when a has ended",
             (1, "a", 10, 6, 0), (1, "b", 8, 5, 0), blocks=5),
        case("first in the queue", "b returns before c, which has never run",
             (1, "a", 10, 6, 0), (1, "b", 8, 5, 0), (1, "c", 2, 2, 0), blocks=5),
        case("itself", "the one that needs the block is the one that came last",
             (1, "a", 9, 7, 0), (1, "b", 7, 6, 0), blocks=5),
        case("by priority", "the least urgent gives way, although it came first, and leaves the plan that it is in",
             (1, "mild", 3, 9, 5), (2, "urgent", 2, 9, 0), blocks=6, block_size=2, policy="priority"),
        case("a token in flight", "with two steps in flight the victim waits for its token, and loses nothing",
             (1, "a", 10, 9, 0), (1, "b", 8, 7, 0), blocks=5, depth=2),
        case("three in turn", "whoever is sent back twice has still all of its output",
             (1, "a", 4, 12, 0), (1, "b", 5, 10, 0), (1, "c", 3, 9, 0), blocks=6, block_size=3, seats=3),
        case("a crowd", "first come, first served", *crowd(6), blocks=7, block_size=3, seats=4),
        case("a crowd by priority", "each request has its own urgency", *crowd(6), blocks=7, block_size=3, seats=4,
             policy="priority"),
        case("a crowd, two steps in flight", "nothing is lost and nothing comes twice", *crowd(6), blocks=7,
             block_size=3, seats=4, depth=2),
    ]  # fmt: skip


def run(subject: Any, case: Case) -> Any:
    """For each step what is computed and who waits with what; at the end everybody's tokens."""
    inputs = case.inputs
    pool = BlockPool(inputs["num_blocks"])
    kv = PagedKVManager(pool, inputs["block_size"])
    lifecycle = Lifecycle(kv, 200)
    limits = BatchConfig(inputs["seats"], BUDGET)
    queue = QUEUES[inputs["policy"]]()
    scheduler = ContinuousScheduler(lifecycle, kv, limits, queue, preemption=subject)
    arrivals, requests = list(inputs["requests"]), {}
    runner, in_flight = Runner(), deque[tuple[SchedulerOutput, ModelRunnerOutput]]()
    steps: list[Any] = []
    while (arrivals or scheduler.has_work or in_flight) and len(steps) < MOST_STEPS:
        is_idle = not scheduler.has_work and not in_flight
        for arrival in [a for a in arrivals if a[0] <= len(steps) + 1] or arrivals[:is_idle]:
            _, name, num_prompt, num_output, priority = arrival
            params = SamplingParams(max_tokens=num_output)
            scheduler.add(EngineCoreRequest(name, [0] * num_prompt, params, priority, float(len(requests))))
            requests[name] = lifecycle.requests[name]
            arrivals.remove(arrival)
        while scheduler.has_work and len(in_flight) < inputs["steps_in_flight"]:
            plan = scheduler.schedule()
            waits = {r.req_id: r.num_computed_tokens for r in requests.values()
                     if r.status in (Status.WAITING, Status.PREEMPTED)}  # fmt: skip
            steps.append({"computed": dict(plan.num_scheduled), "sent back": list(plan.preempted),
                          "waiting, with computed tokens": waits, "free blocks": pool.num_free})  # fmt: skip
            in_flight.append((plan, runner.execute(plan)))
        if runner.complaint:
            return [*steps, runner.complaint]
        scheduler.update(*in_flight.popleft())
    output = {name: list(req.output_ids) for name, req in requests.items()}
    return [*steps, {"output": output, "preemptions": scheduler.stats().preemptions}]


class Runner:
    """Follows plans; the n-th token of a text is n, so that a token lost or given twice shows."""

    def __init__(self) -> None:
        self.complaint = ""
        self._known: dict[str, int] = {}

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """Complains where a plan names a request that the runner does not hold, or more tokens than there are."""
        for req_id in (*plan.finished, *plan.preempted):
            self._known.pop(req_id, None)
        starts = dict(zip(plan.cached.req_ids, plan.cached.num_computed, strict=False))
        for new in plan.new:
            self._known[new.req_id] = len(new.prompt_ids) + len(new.output_ids)
            starts[new.req_id] = new.num_computed
        out = ModelRunnerOutput([], [])
        for req_id, num_tokens in plan.num_scheduled.items():
            known, end = self._known.get(req_id, 0), starts.get(req_id, 0) + num_tokens
            if not known or end > known:
                self.complaint = f"{req_id} computes up to token {end}, and the runner knows {known} of it"
                break
            out.req_ids.append(req_id)
            out.sampled.append([known] if end == known else [])
            self._known[req_id] = known + len(out.sampled[-1])
        return out


def expected(case: Case) -> Any:
    """What happens with the plain version."""
    return run(spec.PlainPreemption, case)
