"""The trace viewer in a real browser: it shows what the trace says at every step, from any file, without harm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sixfold.cli import main
from sixfold.viewer.page import make_page
from stage1.llm import LLM
from stage1.params import SamplingParams
from stage1.trace.events import (
    BlocksFreed,
    BlocksTaken,
    Event,
    RequestAdded,
    RequestFinished,
    StepScheduled,
    TokensSampled,
    TraceStart,
)
from stage1.trace.reader import Trace, read_trace

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32", "max_num_seqs": 2}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of five requests on two seats."""
    path = tmp_path_factory.mktemp("trace") / "steps.jsonl"
    prompts = ["abcdefghijklm", "abc", "hello", "what?", "a"]
    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (5, 9, 3, 4, 7)]
    with LLM(**TINY, trace=str(path)) as llm:
        llm.generate(prompts, params)
    return path


def write(path: Path, *rows: Event | dict[str, Any] | str) -> Path:
    texts = [row if isinstance(row, str) else msgspec.json.encode(row).decode() for row in rows]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def page_of(trace: Path) -> str:
    """The address of the page that the command makes of a trace."""
    assert main(["trace", str(trace), "--no-open"]) == 0
    return trace.with_suffix(".html").as_uri()


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expect_locator

    return expect_locator(locator)


def pairs(page: Any, name: str) -> dict[str, str]:
    """A list of names and values, as a dictionary."""
    names, values = (page.locator(f"#{name} {tag}").all_text_contents() for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def picture(page: Any, name: str) -> str:
    """What a canvas shows."""
    shown: str = page.evaluate("(name) => document.getElementById(name).toDataURL()", name)
    return shown


def steps_shown(page: Any, trace: Trace) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every step of the trace, one key press after the other, with what the page says of it."""
    page.keyboard.press("Home")
    for step in trace.steps:
        expect(page.locator("#time-title")).to_have_text(re.compile(rf"^Step {step} at "))
        rows = page.locator("#step_table tbody tr").all()
        yield (
            step,
            {
                "rows": [tuple(cell.text_content() for cell in row.locator("td").all()) for row in rows],
                "counters": pairs(page, "counters"),
                "blocks": page.text_content("#block_note"),
                "changed": page.text_content("#change_note"),
            },
        )
        page.keyboard.press("ArrowRight")


def changed_before(trace: Trace, step: int) -> set[int]:
    """The blocks that were taken or freed between the plan before ``step`` and its own."""
    blocks: set[int] = set()
    for event in trace.events:
        if isinstance(event, BlocksTaken | BlocksFreed):
            blocks.update(event.block_ids)
        elif isinstance(event, StepScheduled):
            if event.step == step:
                break
            blocks.clear()
    return blocks


def test_every_step_shows_what_the_trace_says(browser: Any, real: Path) -> None:
    """The page's replay against the Python reader's, at each step."""
    trace = read_trace(real)

    def act(page: Any) -> None:
        page.goto(page_of(real))
        about = f"steps.jsonl · stage 1 · tiny · {len(trace.steps)} steps · 5 requests"
        expect(page.locator("#about")).to_have_text(about)
        drawn = 0
        for step, shown in steps_shown(page, trace):
            record = trace.steps[step]
            assert [row[0] for row in shown["rows"]] == list(record.tokens)
            assert [row[2] for row in shown["rows"]] == [str(ids[0]) for ids in record.sampled.values()]
            assert shown["counters"]["running"] == str(record.num_running)
            assert shown["counters"]["waiting"] == str(record.num_waiting)
            assert shown["counters"]["drawn so far"].split()[0] == str(drawn)
            drawn += sum(map(len, record.sampled.values()))
            held = set(trace.blocks_at(step))
            assert shown["counters"]["blocks held"] == f"{len(held)} of {trace.start.num_blocks}"
            assert shown["blocks"].startswith(f"{len(held)} of {trace.start.num_blocks} blocks are held")
            changed = re.findall(r"\d+", shown["changed"])
            assert list(map(int, changed)) == sorted(changed_before(trace, step))

    assert len(trace.steps) > 10
    browser.run(act)


def test_pictures_follow_the_step_and_the_address_keeps_it(browser: Any, real: Path) -> None:
    trace = read_trace(real)
    first, *_, last = trace.steps

    def act(page: Any) -> None:
        page.goto(f"{page_of(real)}#step={last}")
        expect(page.locator("#time-title")).to_have_text(re.compile(f"^Step {last} "))
        names = ("lanes", "overview", "mask", "blocks")
        late = [picture(page, name) for name in names]
        page.focus("#slider")
        page.keyboard.press("Home")
        expect(page.locator("#time-title")).to_have_text(re.compile(f"^Step {first} "))
        assert not set(late) & {picture(page, name) for name in names}
        expect(page.locator("#slider")).to_have_attribute("aria-valuetext", re.compile(f"^step {first}: "))
        (start, n), (_, m) = trace.steps[first].tokens.values()
        assert start == 0
        computed = n * (n + 1) // 2 + m * (m + 1) // 2
        note = f"{n + m} query tokens of 2 requests over {n + m} keys: {computed} pairs"
        expect(page.locator("#mask_note")).to_contain_text(note)
        page.wait_for_url(f"**#step={first}")
        page.evaluate("(step) => { location.hash = `#step=${step}`; }", last - 1)
        expect(page.locator("#time-title")).to_have_text(re.compile(f"^Step {last - 1} "))
        page.keyboard.press("Home")
        page.select_option("#speed", "200")
        page.focus("#lanes")
        page.keyboard.press("Space")
        expect(page.locator("#time-title")).to_have_text(re.compile(f"^Step {last} "))
        expect(page.locator("#play")).to_have_text("Play")

    browser.run(act)


def test_a_click_on_a_lane_opens_the_life(browser: Any, real: Path) -> None:
    trace = read_trace(real)
    req_id, life = list(trace.requests.items())[3]
    assert life.ttft is not None

    def act(page: Any) -> dict[str, str]:
        page.goto(page_of(real))
        before = picture(page, "life")
        page.click("#lanes", position={"x": 40, "y": 3 * 26 + 15})
        expect(page.locator("#life-title")).to_have_text(f"Life of {req_id}")
        expect(page.locator("#request")).to_have_value(req_id)
        assert picture(page, "life") != before
        return pairs(page, "life_numbers")

    numbers = browser.run(act)

    def near(text: str, seconds: float) -> bool:
        return abs(float(text.removesuffix(" ms").replace(",", "")) - seconds * 1000) <= 0.51

    assert near(numbers["TTFT"], life.ttft)
    assert near(numbers["waited"], (life.first_scheduled or 0) - life.added)
    assert near(numbers["ITL, longest"], max(life.itl))
    assert numbers["output"] == "4 tokens"
    assert numbers["ended by"] == "length"


def test_a_file_can_be_chosen_or_dropped(browser: Any, real: Path, tmp_path: Path) -> None:
    """The page without a trace in it opens one, then another."""
    empty = tmp_path / "empty.html"
    empty.write_text(make_page(), encoding="utf-8")
    drop = """([name, text]) => {
      const data = new DataTransfer();
      data.items.add(new File([text], name));
      document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }"""

    def act(page: Any) -> None:
        page.goto(empty.as_uri())
        expect(page.locator("#empty")).to_be_visible()
        page.set_input_files("#file", real)
        expect(page.locator("#about")).to_contain_text("steps.jsonl · stage 1 · tiny")
        expect(page.locator("#empty")).to_be_hidden()
        page.evaluate(drop, ["cut.jsonl", "".join(real.read_text().splitlines(keepends=True)[:12])])
        expect(page.locator("#about")).to_contain_text("cut.jsonl")
        expect(page.locator("#notes")).to_be_hidden()

    browser.run(act)


def large_trace(num_steps: int, num_requests: int) -> Iterator[Event]:
    """Eight run at a time, one ends every ten steps."""
    yield TraceStart(0.0, 1e9, 2, "large", 16, 5000, 8)
    for i in range(num_requests):
        yield RequestAdded(0.0, f"r{i}", 1)
        yield BlocksTaken(0.0, f"r{i}", [i])
    for step in range(num_steps):
        t, first = step * 0.01, step // 10
        names = [f"r{i}" for i in range(first, min(first + 8, num_requests))]
        waiting = max(0, num_requests - first - 8)
        yield StepScheduled(t, step, dict.fromkeys(names, (step, 1)), len(names), waiting)
        yield TokensSampled(t + 0.009, step, {name: [step] for name in names})
        if step % 10 == 9:
            yield RequestFinished(t + 0.009, f"r{first}", "length", 10)
            yield BlocksFreed(t + 0.009, f"r{first}", [first])


def test_a_large_trace_draws_only_what_is_visible(browser: Any, tmp_path: Path) -> None:
    """10,000 steps of 1,000 requests: a frame fills a few thousand rectangles, at any zoom, and every step is exact."""
    trace = write(tmp_path / "large.jsonl", *large_trace(10_000, 1000))
    count_rectangles = """
    window.filled = 0;
    const fill = CanvasRenderingContext2D.prototype.fillRect;
    CanvasRenderingContext2D.prototype.fillRect = function (...box) { window.filled += 1; fill.apply(this, box); };
    """

    def act(page: Any) -> int:
        page.add_init_script(count_rectangles)
        page.goto(f"{page_of(trace)}#step=7777")
        expect(page.locator("#counters")).to_contain_text("777 requests")
        for _ in range(6):
            page.click("#zoom_out")
        page.evaluate("window.filled = 0")
        page.keyboard.press("End")
        expect(page.locator("#time-title")).to_have_text(re.compile("^Step 9,999 "))
        expect(page.locator("#counters")).to_contain_text("999 requests")
        filled: int = page.evaluate("window.filled")
        page.keyboard.press("Home")
        expect(page.locator("#lanes_note")).to_contain_text("18 of the 1,000 requests")
        page.focus("#lanes")
        before = picture(page, "lanes")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#time-title")).to_have_text(re.compile("^Step 0 "))
        page.wait_for_function("(before) => document.getElementById('lanes').toDataURL() !== before", arg=before)
        return filled

    assert browser.run(act) < 20_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen(browser: Any, real: Path, scheme: str) -> None:
    def act(page: Any) -> tuple[int, str]:
        page.goto(page_of(real))
        expect(page.locator("#life")).to_be_visible()
        return page.evaluate("[document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]")

    width, ground = browser.run(act, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    assert width == 360
    brightness = sum(map(int, re.findall(r"\d+", ground)[:3]))
    assert brightness > 600 if scheme == "light" else brightness < 150
