"""The page counts from the trace what the scheduler counts: ends amid drafts, aborts and victims."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec

from sixfold.exercises.importer import load_file

bed = load_file(Path(__file__).with_name("spec_bed.py"))
page_bed = load_file(Path(__file__).parents[1] / "stage1" / "page_bed.py")
run_js = page_bed.run_js

SUMS = """
import { TraceModel } from "./trace.js";
console.log(JSON.stringify(given.map((events) => {
  const model = new TraceModel();
  for (const event of events) model.apply(event);
  const requests = [...model.requests.values()];
  const sum = (name) => requests.reduce((total, request) => total + request[name], 0);
  return { ...model.speculation, ofRequests: [sum("drafts"), sum("stayed")] };
})));
"""


def played(seed: int, p: float, num_blocks: int) -> Any:
    """A bed that has served requests of any kind; some are aborted, most end with a token that was drafted."""
    chance = random.Random(seed)
    played = bed.SpecBed(num_blocks=num_blocks, p=p, num_drafts=4, seed=seed)
    for i in range(14):
        prompt = [chance.randrange(23) for _ in range(chance.randrange(1, 12))]
        played.add(f"r{i}", prompt, max_tokens=chance.randrange(1, 30), ignore_eos=chance.random() < 0.2)
        for _ in range(chance.randrange(4)):
            played.step()
        if chance.random() < 0.15:
            played.scheduler.abort([f"r{chance.randrange(i + 1)}"])
    played.run()
    return played


@page_bed.needs_node
def test_the_page_counts_what_the_scheduler_counts(run_js: Any) -> None:
    beds = [played(seed, p, blocks) for seed in range(12) for p in (0.6, 1.0) for blocks in (10, 40)]
    sums = run_js(SUMS, [[msgspec.to_builtins(event) for event in made.sink.events] for made in beds])
    cut = 0
    for made, seen in zip(beds, sums, strict=True):
        counter, places = made.counter, seen.pop("places")
        of_requests = seen.pop("ofRequests")
        assert seen == {
            "verifications": counter.num_verifications,
            "drafts": counter.num_drafts,
            "stayed": counter.num_accepted,
            "tokens": counter.num_tokens,
        }
        assert of_requests == [counter.num_drafts, counter.num_accepted]
        assert places + [0] * (4 - len(places)) == counter.accepted_per_position
        cut += sum(len(ids) for event in made.sink.events for ids in getattr(event, "ids", {}).values())
        cut -= sum(getattr(event, "num_output_tokens", 0) for event in made.sink.events)
    assert cut > 20  # tokens behind an end: without them nothing would have been shown
