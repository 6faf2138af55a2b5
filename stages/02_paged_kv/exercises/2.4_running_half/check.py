"""A scheduler driven without a model, its plans compared step by step: who computes how many tokens, who gives way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from sixfold.exercises.checking import Case
from sixfold.exercises.importer import load_file
from stage1.lifecycle import Lifecycle
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest, ModelRunnerOutput, SchedulerOutput
from stage2.block_pool import BlockPool
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.waiting import FcfsQueue

spec = load_file(Path(__file__).with_name("spec.py"))

TOLERANCE: dict[str, float] = {}
MAX_LEN = 300
PLENTY = 200  # blocks


def cases(rng: random.Random) -> list[Case]:
    """From one request to a crowd in a small cache."""

    def case(name: str, words: str, *arrivals: Any, seats: int = 3, budget: int = 30, blocks: int = PLENTY,
             block_size: int = 5, threshold: int = 0) -> Case:  # fmt: skip
        limits = {"seats": seats, "num_blocks": blocks, "block_size": block_size, "budget": budget}
        return Case(name, words, {**limits, "threshold": threshold, "arrivals": list(arrivals)})

    def crowd(count: int, most: int) -> list[Any]:
        return sorted((rng.randint(1, 9), f"r{i}", rng.randint(1, most), rng.randint(1, 7)) for i in range(count))

    return [
        case("one request", "the whole prompt in the first step, then one token a step", (1, "a", 7, 4)),
        case("a long prompt", "13 tokens with 6 a step: 6, 6, 1, and the first token only then", (1, "a", 13, 3),
             budget=6, seats=1),
        case("side by side", "a and b go on with a token each while c's prompt fills the rest of each step",
             (1, "a", 2, 6), (1, "b", 3, 7), (2, "c", 17, 2), budget=7),
        case("first come, first served", "who was admitted first takes from the budget first",
             (1, "a", 11, 3), (2, "b", 9, 3), (2, "c", 6, 2), budget=5, seats=3),
        case("a threshold", "no prompt takes more than 4 tokens of a step", (1, "a", 11, 2), (1, "b", 9, 3), budget=9,
             threshold=4),
        case("a seat becomes free", "c comes in the step after b has ended", (1, "a", 4, 6), (1, "b", 3, 2),
             (1, "c", 5, 3), seats=2),
        case("a new block", "every fifth token needs one, and the plan must say which", (1, "a", 4, 9), blocks=3),
        case("somebody gives way", "no block is left for a: b, which came last, goes back and starts over later",
             (1, "a", 9, 7), (1, "b", 8, 5), blocks=4, seats=2),
        case("a crowd", "nine requests arrive over time", *crowd(9, 17), budget=11),
        case("a crowd in a small cache", "they give way again and again, and every one gets its tokens",
             *crowd(8, 14), budget=13, blocks=7, block_size=3),
    ]  # fmt: skip


def run(subject: Any, case: Case) -> Any:
    """What each step computes of each request, and who was sent back."""
    inputs = case.inputs
    kv = PagedKVManager(BlockPool(inputs["num_blocks"]), inputs["block_size"])
    limits = BatchConfig(inputs["seats"], inputs["budget"], inputs["threshold"])
    scheduler = subject(Lifecycle(kv, MAX_LEN), kv, limits, FcfsQueue())
    arrivals, runner = list(inputs["arrivals"]), Runner(inputs["block_size"])
    steps: list[dict[str, Any]] = []
    limit = len(expected(case)) + 4
    while (arrivals or scheduler.has_work) and len(steps) < limit:
        for _, req_id, num_prompt, num_output in [a for a in arrivals if a[0] <= len(steps) + 1]:
            params = SamplingParams(max_tokens=num_output)
            scheduler.add(EngineCoreRequest(req_id, list(range(num_prompt)), params))
        arrivals = [a for a in arrivals if a[0] > len(steps) + 1]
        plan = scheduler.schedule()
        steps.append({"computed": dict(plan.num_scheduled), "sent back": list(plan.preempted)})
        out = runner.execute(plan)
        if runner.complaint:
            return [*steps[:-1], runner.complaint]
        scheduler.update(plan, out)
    return steps


class Runner:
    """Follows the plan, and complains where it cannot."""

    def __init__(self, block_size: int) -> None:
        self.complaint = ""
        self._block_size = block_size
        self._known: dict[str, int] = {}
        self._blocks: dict[str, int] = {}

    def execute(self, plan: SchedulerOutput) -> ModelRunnerOutput:
        """A token for each request whose known tokens are all computed now."""
        starts = dict(zip(plan.cached.req_ids, plan.cached.num_computed, strict=False))
        for new in plan.new:
            self._known[new.req_id] = len(new.prompt_ids) + len(new.output_ids)
            self._blocks[new.req_id] = len(new.block_ids)
            starts[new.req_id] = new.num_computed
        for req_id, block_ids in plan.cached.new_block_ids.items():
            self._blocks[req_id] += len(block_ids)
        out = ModelRunnerOutput([], [])
        for req_id, num_tokens in plan.num_scheduled.items():
            end, known = starts.get(req_id, 0) + num_tokens, self._known[req_id]
            room = self._blocks[req_id] * self._block_size
            if end > min(room, known):
                why = f"there is room for {room}" if end > room else f"{known} are known"
                self.complaint = self.complaint or f"{req_id} computes up to token {end}, and {why}"
            out.req_ids.append(req_id)
            out.sampled.append([7] if end == known else [])
            self._known[req_id] += len(out.sampled[-1])
        return out


def expected(case: Case) -> Any:
    """The specification's steps."""
    return spec.steps(**case.inputs)
