"""The page: served whole, kept to itself, safe with any text; its logic runs under node where that is there."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from sixfold.exercises.importer import load_file
from stage1.server.app import create_app
from stage1.trace.events import (
    BlocksFreed,
    BlocksTaken,
    EventsLost,
    RequestAdded,
    RequestFinished,
    StepScheduled,
    TokensSampled,
    TraceStart,
)

bed = load_file(Path(__file__).with_name("page_bed.py"))
NAMES, SOURCES, as_json, needs_node, run_js = bed.NAMES, bed.SOURCES, bed.as_json, bed.needs_node, bed.run_js


def get(*paths: str) -> list[httpx.Response]:
    client: Any = SimpleNamespace(model_name="m", dead=None, tokenizer=None)

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(client))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return [await http.get(path) for path in paths]

    return asyncio.run(ask())


def test_every_file_is_served_with_its_type() -> None:
    index, *parts = get("/", *(f"/page/{name}" for name in NAMES))
    assert index.text == SOURCES["index.html"]
    types = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    for name, part in zip(NAMES, parts, strict=True):
        assert part.headers["content-type"] == f"{types[name.rpartition('.')[2]]}; charset=utf-8"
        assert part.text == SOURCES[name]


def test_the_policy_allows_nothing_from_outside_and_nothing_inline() -> None:
    policy = get("/")[0].headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[f"{kind}-src"] for kind in ("script", "style", "img", "connect")} == {"'self'"}


class Elements(HTMLParser):
    """All start tags with their attributes, and the text of inline scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


ELEMENTS = Elements(SOURCES["index.html"]).found


def test_the_markup_keeps_the_policy_and_points_at_files_that_exist() -> None:
    for tag, attributes in ELEMENTS:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        assert tag != "style"
        assert tag != "script" or attributes.get("src")
        for name in ("src", "href"):
            if (target := attributes.get(name)) and not target.startswith("#"):
                assert target.removeprefix("/page/") in NAMES


def test_every_field_has_a_label_and_every_id_is_used_right() -> None:
    ids = [attributes["id"] for _, attributes in ELEMENTS if "id" in attributes]
    assert len(ids) == len(set(ids))
    for name in ("playground.js", "live.js"):
        assert set(re.findall(r'byId\("(\w+)"\)', SOURCES[name])) <= set(ids), name
    labelled = {attributes["for"] for tag, attributes in ELEMENTS if tag == "label" and "for" in attributes}
    without = re.sub(r"<label[^>]*>.*?</label>", "", SOURCES["index.html"], flags=re.DOTALL)
    loose = {a.get("id") for tag, a in Elements(without).found if tag in ("input", "select", "textarea")}
    assert loose <= labelled


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith((".js", ".css"))])
def test_no_text_becomes_markup_and_nothing_is_fetched_from_outside(name: str) -> None:
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setAttribute\(.on"
    assert not re.search(banned, SOURCES[name])
    assert "://" not in SOURCES[name]
    assert not re.search(r"url\(|@import", SOURCES[name])


# --- its logic ---------------------------------------------------------------------------------------


@needs_node
def test_events_survive_any_cut(run_js: Any) -> None:
    events = [{"text": "a\nb\n\ndata: x"}, {"text": "é🦙"}, {"error": {"message": "no"}}]
    stream = "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events) + "data: [DONE]\n\n"
    script = """
    import { readEvents } from "./sse.js";
    const bytes = new TextEncoder().encode(given + "data: {\\"after\\": 1}\\n\\n");
    const results = [];
    for (let size = 1; size <= 9; size += 1) {
      const body = new ReadableStream({ start(controller) {
        for (let i = 0; i < bytes.length; i += size) controller.enqueue(bytes.slice(i, i + size));
        controller.close();
      } });
      const read = [];
      for await (const event of readEvents(body)) read.push(event);
      results.push(read);
    }
    console.log(JSON.stringify(results));
    """
    assert run_js(script, stream) == [events] * 9


@needs_node
def test_errors_are_put_into_words(run_js: Any) -> None:
    script = """
    import { errorOf } from "./sse.js";
    const bodies = [['{"error": {"message": "n must be 1"}}', 400], ['{"error": "Unauthorized"}', 401], ["<p>", 502]];
    const errors = bodies.map(([text, status]) => errorOf(new Response(text, { status })));
    console.log(JSON.stringify(await Promise.all(errors)));
    """
    plain, key, other = run_js(script)
    assert plain == "n must be 1"
    assert "API key" in key
    assert "502" in other


TRACE = [
    TraceStart(0.0, 1e9, 1, "tiny", 100, 4, 4),
    RequestAdded(0.1, "a", 50),
    RequestAdded(0.1, "b", 3),
    BlocksTaken(0.2, "a", [2]),
    BlocksTaken(0.2, "b", [0]),
    StepScheduled(0.2, 0, {"a": (0, 50), "b": (0, 3)}, 2, 1),
    TokensSampled(0.3, 0, {"a": [7], "b": [8]}),
    StepScheduled(0.4, 1, {"a": (50, 1), "b": (3, 1)}, 2, 1),
    TokensSampled(0.5, 1, {"a": [9], "b": [2]}),
    RequestFinished(0.5, "b", "stop", 2),
    BlocksFreed(0.5, "b", [0]),
    EventsLost(0.5, 5),
    BlocksTaken(0.6, "c", [0]),
    StepScheduled(0.6, 2, {"a": (51, 1), "c": (0, 100)}, 2, 0),
]


@needs_node
def test_the_model_follows_the_trace(run_js: Any) -> None:
    script = """
    import { TraceModel, describeStep } from "./trace.js";
    const model = new TraceModel();
    for (const event of given) model.apply(event);
    const [a, b, c] = ["a", "b", "c"].map((id) => model.requests.get(id));
    console.log(JSON.stringify({
      lanes: [a.lane, b.lane, c.lane], computed: [a.computed, b.computed, c.computed], ended: [a.finished, b.finished],
      fill: [model.fill(a, 0), model.fill(c, 0)], owners: [...model.owners].map(([k, v]) => [k, [...v]]),
      ids: model.steps.map((step) => step.ids), lost: model.numLost, said: model.steps.map(describeStep),
    }));
    """
    seen = run_js(script, as_json(TRACE))
    assert seen["lanes"] == [0, 1, 1]  # the lane of a request that has ended is free again
    assert seen["computed"] == [52, 4, 100]
    assert seen["ended"] == [False, True]
    assert seen["fill"] == [0.52, 1]
    assert sorted(seen["owners"]) == [[0, ["c"]], [2, ["a"]]]
    assert seen["ids"] == [{"a": [7], "b": [8]}, {"a": [9], "b": [2]}, {}]
    assert seen["lost"] == 5
    assert seen["said"][0] == "step 0: 53 tokens of 2 requests, 1 waiting"


@needs_node
def test_a_long_trace_is_forgotten(run_js: Any) -> None:
    script = """
    import { TraceModel } from "./trace.js";
    const model = new TraceModel();
    for (let step = 0; step < 20000; step += 1) {
      const id = `r${step}`;
      model.apply({ kind: "step_scheduled", t: 0, step, tokens: { [id]: [0, 1] }, num_running: 1, num_waiting: 0 });
      model.apply({ kind: "request_finished", req_id: id, reason: "stop" });
    }
    console.log(JSON.stringify([model.steps.length, model.requests.size, model.steps.at(-1).step]));
    """
    steps, requests, last = run_js(script)
    assert max(steps, requests) <= 3600
    assert last == 19999


@needs_node
def test_a_cell_a_request_and_step(run_js: Any) -> None:
    """Scheduled requests are drawn once a step, prompts taller than tokens; blocks are filled as far as computed."""
    script = """
    import { TraceModel } from "./trace.js";
    import { drawBlocks, drawTimeline, stepAt } from "./draw.js";
    globalThis.window = { devicePixelRatio: 2 };
    globalThis.document = { documentElement: null };
    globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => name });
    const canvas = () => {
      const rects = [];
      const pen = new Proxy({ rects, fillRect(x, y, w, h) { rects.push([this.fillStyle, x, y, w, h]); } },
        { get: (target, name) => target[name] ?? (() => {}) });
      return { clientWidth: 600, style: {}, getContext: () => pen, rects };
    };
    const model = new TraceModel();
    for (const event of given) model.apply(event);
    const [timeline, blocks] = [canvas(), canvas()];
    const view = { cell: 20, last: 2, selected: 1 };
    drawTimeline(timeline, model, view);
    drawBlocks(blocks, model);
    const hits = [0, 120, 140, 175, 180].map((x) => stepAt(timeline, view, 3, x));
    console.log(JSON.stringify([timeline.rects, blocks.rects, hits]));
    """
    timeline, blocks, hits = run_js(script, as_json(TRACE))
    cells = [rect for rect in timeline if rect[0].startswith("--lane-")]
    heights = {(colour, round((x - 116.5) / 20)): height for colour, x, _, _, height in cells}
    assert set(heights) == {
        ("--lane-0", 0),
        ("--lane-0", 1),
        ("--lane-0", 2),
        ("--lane-1", 0),
        ("--lane-1", 1),
        ("--lane-2", 2),
    }
    assert len(cells) == 6
    assert heights["--lane-2", 2] > heights["--lane-0", 0] > heights["--lane-1", 0] > heights["--lane-0", 1]
    side = blocks[0][3]
    filled = {colour: height for colour, _, _, _, height in blocks[1::2]}
    assert filled == {"--lane-2": side, "--lane-0": pytest.approx(side * 0.52)}
    assert hits == [None, 0, 1, 2, None]


@needs_node
def test_of_a_large_cache_only_the_taken_blocks_are_drawn(run_js: Any) -> None:
    script = """
    import { shownBlocks } from "./draw.js";
    const taken = new Map(given.map((block) => [block, new Set(["a"])]));
    const small = shownBlocks({ start: { num_blocks: 5 }, owners: taken });
    const large = shownBlocks({ start: { num_blocks: 400000 }, owners: taken, changed: new Set([7]) });
    const many = new Map(Array.from({ length: 9000 }, (_, i) => [i * 3, new Set(["a"])]));
    const capped = shownBlocks({ start: { num_blocks: 400000 }, owners: many });
    console.log(JSON.stringify([small, large, capped.length, capped[4095], shownBlocks({ start: null })]));
    """
    assert run_js(script, [399999, 3, 12]) == [[0, 1, 2, 3, 4], [3, 7, 12, 399999], 4096, 4095 * 3, []]
