"""A scheduler driven without a model, its plans compared step by step: who closes the gap gets a token."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage1.kv_manager import OneBlockKVManager
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput, SchedulerOutput

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
MAX_LEN = 400


def cases(rng: random.Random) -> list[Case]:
    """From one request to a crowd that arrives over time."""

    def case(name: str, words: str, seats: int, blocks: int, budget: int, *arrivals: Any, aborts: Any = None) -> Case:
        inputs = {
            "seats": seats,
            "blocks": blocks,
            "budget": budget,
            "arrivals": list(arrivals),
            "aborts": aborts or {},
        }
        return Case(name, words, inputs)

    crowd = [(rng.randint(1, 9), f"r{i}", rng.randint(1, 17), rng.randint(1, 6)) for i in range(11)]
    return [
        case("one request", "the whole prompt in one step, then one token a step", 2, 2, 40, (1, "a", 5, 3)),
        case("two requests", "both prompts share the first step, and each later step has a token of each",
             2, 2, 40, (1, "a", 5, 3), (1, "b", 3, 3)),
        case("three requests, two seats", "c waits until the last token of a, although b leaves its seat early",
             2, 2, 40, (1, "a", 4, 4), (1, "b", 6, 2), (1, "c", 3, 2)),
        case("a small budget", "the second prompt does not fit beside the first one: it waits for the next step",
             2, 2, 33, (1, "a", 21, 3), (1, "b", 17, 2)),
        case("fewer blocks than seats", "a request without a block stays in the queue, and comes with the next batch",
             3, 2, 60, (1, "a", 3, 2), (1, "b", 2, 1), (1, "c", 4, 2)),
        case("an abort", "when the last request of a batch is aborted, the next batch begins",
             1, 1, 40, (1, "a", 3, 6), (2, "b", 2, 2), aborts={3: "a"}),
        case("a crowd", "eleven requests arrive over time, three seats", 3, 3, 34, *sorted(crowd)),
    ]  # fmt: skip


def run(subject: Any, case: Case) -> Any:
    """What each step computes of each request."""
    inputs = case.inputs
    kv = OneBlockKVManager(inputs["blocks"], MAX_LEN)
    scheduler = subject(Lifecycle(kv, MAX_LEN), kv, inputs["seats"], inputs["budget"])
    arrivals, aborts = list(inputs["arrivals"]), inputs["aborts"]
    ends: dict[str, int] = {}  # prompt tokens of each request
    computed: dict[str, int] = {}
    plans: list[dict[str, int]] = []
    limit = len(expected(case)) + 5
    while (arrivals or scheduler.has_work) and len(plans) < limit:
        step = len(plans) + 1
        for _, req_id, num_prompt, num_output in [a for a in arrivals if a[0] <= step]:
            params = SamplingParams(max_tokens=num_output)
            scheduler.add(EngineCoreRequest(req_id, list(range(num_prompt)), params))
            ends[req_id], computed[req_id] = num_prompt, 0
        arrivals = [a for a in arrivals if a[0] > step]
        if step in aborts:
            scheduler.abort([aborts[step]])
        plan = scheduler.schedule()
        plans.append(dict(plan.num_scheduled))
        scheduler.update(plan, _compute(plan, ends, computed))
    return plans


def _compute(plan: SchedulerOutput, ends: dict[str, int], computed: dict[str, int]) -> ModelRunnerOutput:
    """A token for each request whose known tokens are all computed now."""
    out = ModelRunnerOutput([], [])
    for req_id, num_tokens in plan.num_scheduled.items():
        computed[req_id] += num_tokens
        out.req_ids.append(req_id)
        out.sampled.append([7] if computed[req_id] >= ends[req_id] else [])
        ends[req_id] += len(out.sampled[-1])
    return out


def expected(case: Case) -> Any:
    """The specification's steps."""
    return spec.steps(**case.inputs)
