"""What the page says of speculation and of the prefix cache, from events alone: its logic, under node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sixfold.exercises.importer import load_file
from stage1.trace.events import (
    BlocksFreed,
    BlocksShared,
    BlocksTaken,
    RequestAdded,
    RequestFinished,
    RequestPreempted,
    StepScheduled,
    TokensSampled,
    TraceStart,
)

bed = load_file(Path(__file__).with_name("page_bed.py"))
as_json, needs_node, run_js = bed.as_json, bed.needs_node, bed.run_js

START = TraceStart(0.0, 1e9, 3, "tiny", 4, 64, 4)
LOOK = """
import { describePrefix, describeSpeculation, placeBars } from "./gains.js";
import { describeLife, lifeOf } from "./life.js";
import { TraceModel, describeDrafts, describeStep } from "./trace.js";
const model = new TraceModel();
for (const event of given) model.apply(event);
const life = (id) => Object.fromEntries(describeLife(lifeOf(model, model.requests.get(id))));
"""
SUMS = LOOK + "console.log(JSON.stringify([model.speculation, model.prefix]));"

# a: 2 of 3 drafts stay, then 0 of 1; "constructor": all 2 of 2, then a step without drafts.
SPECULATED: list[Any] = [
    START,
    RequestAdded(0.1, "a", 5),
    RequestAdded(0.1, "constructor", 4),
    StepScheduled(0.2, 0, {"a": (0, 5), "constructor": (0, 4)}, 2, 0),
    TokensSampled(0.3, 0, {"a": [7], "constructor": [8]}),
    StepScheduled(0.4, 1, {"a": (5, 4), "constructor": (4, 3)}, 2, 0, {"a": 3, "constructor": 2}),
    TokensSampled(0.5, 1, {"a": [1, 2, 3], "constructor": [4, 5, 6]}),
    StepScheduled(0.6, 2, {"a": (8, 2), "constructor": (7, 1)}, 2, 0, {"a": 1}),
    TokensSampled(0.7, 2, {"a": [9], "constructor": [9]}),
    StepScheduled(0.8, 3, {"a": (9, 3)}, 2, 0, {"a": 2}),
]


@needs_node
def test_drafts_are_counted_by_step_request_and_place(run_js: Any) -> None:
    script = (
        LOOK
        + """
    console.log(JSON.stringify({
      rows: describeSpeculation(model.speculation), bars: placeBars(model.speculation),
      steps: model.steps.map((entry) => describeDrafts(entry)), said: describeStep(model.steps[1]),
      rowsOfA: model.steps.map((entry) => describeDrafts(entry, "a")),
      other: model.steps.map((entry) => describeDrafts(entry, "constructor")),
      lives: [life("a"), life("constructor")].map((rows) => [rows["drafts stayed"], rows["from the cache"]]),
      computed: model.requests.get("a").computed,
    }));
    """
    )
    seen = run_js(script, as_json(SPECULATED))
    assert seen["rows"] == [
        ["verifications", "3"],
        ["drafts", "6"],
        ["stayed", "4 (67 %)"],
        ["acceptance length", "2.33"],
    ]
    assert [(bar["name"], bar["value"], bar["words"]) for bar in seen["bars"]] == [
        ("draft 1", "67 %", " stayed: 2 of 3 times"),
        ("draft 2", "67 %", " stayed: 2 of 3 times"),
        ("draft 3", "0 %", " stayed: 0 of 3 times"),
    ]
    assert seen["steps"] == ["", "5 drafts, 4 stayed", "1 draft, 0 stayed", "2 drafts"]  # the last one still computes
    assert seen["rowsOfA"] == ["", "3 drafts, 2 stayed", "1 draft, 0 stayed", "2 drafts"]
    assert seen["other"] == ["", "2 drafts, 2 stayed", "", ""]
    assert seen["said"] == "step 1: 7 tokens of 2 requests, 0 waiting, 5 drafts, 4 stayed"
    assert seen["lives"] == [["2 of 4", None], ["2 of 2", None]]
    assert seen["computed"] == 12


@needs_node
def test_what_was_accepted_behind_an_end_is_taken_back(run_js: Any) -> None:
    """Four of four drafts stay, but the second token ends the request; another one ends without drafts, and is left."""
    trace = [
        *SPECULATED[:-1],
        StepScheduled(0.8, 3, {"a": (9, 5)}, 2, 0, {"a": 4}),
        TokensSampled(0.9, 3, {"a": [1, 2, 3, 4, 5]}),
        RequestFinished(0.9, "a", "stop", 1 + 3 + 1 + 2),
        RequestFinished(0.9, "constructor", "abort", 5),
    ]
    speculation, _ = run_js(SUMS, as_json(trace))
    assert speculation == {"verifications": 4, "drafts": 10, "stayed": 4 + 2, "places": [3, 3, 0, 0], "tokens": 7 + 2}


@needs_node
def test_a_request_that_ends_with_its_last_draft_keeps_all(run_js: Any) -> None:
    """The token behind the accepted drafts is the only one that is dropped."""
    trace = [
        *SPECULATED[:-1],
        StepScheduled(0.8, 3, {"a": (9, 3)}, 2, 0, {"a": 2}),
        TokensSampled(0.9, 3, {"a": [1, 2, 3]}),
        RequestFinished(0.9, "a", "stop", 1 + 3 + 1 + 2),
    ]
    speculation, _ = run_js(SUMS, as_json(trace))
    assert speculation == {"verifications": 4, "drafts": 8, "stayed": 6, "places": [3, 3, 0], "tokens": 9}


@needs_node
def test_a_prompt_is_looked_up_once(run_js: Any) -> None:
    """Only the first admission counts: not one that found no room, nor what a victim finds of its own work."""
    trace = [
        START,
        RequestAdded(0.1, "a", 20),
        BlocksTaken(0.1, "a", [1, 2, 3, 4, 5]),
        StepScheduled(0.2, 0, {"a": (0, 20)}, 1, 0),
        RequestAdded(0.3, "b", 30),
        BlocksShared(0.3, "b", [1, 2], 8),
        BlocksFreed(0.3, "b", [1, 2]),  # no room for the rest
        StepScheduled(0.4, 1, {"a": (20, 1)}, 1, 1),
        BlocksShared(0.5, "b", [1, 2, 3], 12),
        StepScheduled(0.5, 2, {"a": (21, 1), "b": (12, 18)}, 2, 0),
        BlocksFreed(0.6, "b", [1, 2, 3]),
        RequestPreempted(0.6, 3, "b"),
        BlocksShared(0.7, "b", [1, 2, 3, 6, 7], 20),
        StepScheduled(0.7, 4, {"b": (20, 10)}, 1, 0),
        BlocksShared(0.8, "unseen", [1], 4),  # its request_added is lost: how long its prompt is nobody knows
        StepScheduled(0.8, 5, {"unseen": (4, 1)}, 1, 0),
        RequestAdded(0.9, "c", 9),
        BlocksShared(0.9, "c", [1], 4),
        BlocksFreed(0.9, "c", [1]),  # what it found is gone when it comes again
        StepScheduled(0.9, 6, {"c": (0, 9)}, 1, 0),
    ]
    script = (
        LOOK
        + """
    const lives = ["a", "b", "c"].map((id) => [life(id)["from the cache"], life(id)["drafts stayed"]]);
    console.log(JSON.stringify([describePrefix(model.prefix), lives]));
    """
    )
    rows, lives = run_js(script, as_json(trace))
    assert rows == [["looked up", "59"], ["found", "12"], ["hit rate", "20 %"]]
    assert lives == [["0 tokens", None], ["12 tokens", None], ["0 tokens", None]]


@needs_node
def test_nothing_is_said_of_what_never_happened(run_js: Any) -> None:
    """Without a draft or a hit the cards stay hidden, and no row, step or life speaks of them."""
    script = (
        LOOK
        + """
    import { showPrefix, showSpeculation } from "./gains.js";
    const cards = [{}, {}];
    showSpeculation(cards[0], model.speculation);
    showPrefix(cards[1], model.prefix);
    console.log(JSON.stringify([cards, Object.keys(life("a")), describePrefix({ looked: 0, found: 0 })]));
    """
    )
    cards, names, empty = run_js(script, as_json(SPECULATED[:5]))
    assert cards == [{"hidden": True}, {"hidden": True}]
    assert not {"drafts stayed", "from the cache"} & set(names)
    assert empty[-1] == ["hit rate", "–"]


@needs_node
def test_sums_outlive_the_steps_that_are_forgotten(run_js: Any) -> None:
    script = """
    import { TraceModel } from "./trace.js";
    const model = new TraceModel(10);
    model.apply({ kind: "request_added", t: 0, req_id: "a", num_prompt_tokens: 3 });
    for (let step = 0; step < 2000; step += 1) {
      const plan = { tokens: { a: [0, 3] }, drafts: { a: 2 }, num_running: 1, num_waiting: 0 };
      model.apply({ kind: "step_scheduled", t: 0, step, ...plan });
      model.apply({ kind: "tokens_sampled", t: 0, step, ids: { a: [1, 2] } });
    }
    model.apply({ kind: "tokens_sampled", t: 0, step: 0, ids: { a: [1, 2] } }); // of a step that is not known
    console.log(JSON.stringify([model.steps.length < 600, model.speculation]));
    """
    short, speculation = run_js(script)
    assert short
    assert speculation == {"verifications": 2000, "drafts": 4000, "stayed": 2000, "places": [2000, 0], "tokens": 4000}
