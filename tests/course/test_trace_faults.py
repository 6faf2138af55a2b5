"""The trace viewer with files that somebody else wrote: what is wrong in them is named, and never run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from sixfold.cli import main
from stage1.trace.events import BlocksTaken, Event, RequestAdded, RequestFinished, StepScheduled, TokensSampled

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


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


def test_a_hostile_trace_is_shown_safely(browser: Any, tmp_path: Path) -> None:
    """Ids that are markup or names of every object, faulty lines, no start, a cut end: named, never run."""
    ids = [HOSTILE, "__proto__", "constructor", ""]
    trace = write(
        tmp_path / "hostile.jsonl",
        *[RequestAdded(0.1, req_id, 3) for req_id in ids],
        *[BlocksTaken(0.2, req_id, [k]) for k, req_id in enumerate(ids)],
        StepScheduled(0.2, 1, dict.fromkeys(ids, (0, 3)), 4, 0),
        TokensSampled(0.3, 1, {HOSTILE: [5]}),
        {"kind": "step_scheduled", "t": 0.4, "step": 2, "tokens": {"a": "xy"}, "num_running": 1, "num_waiting": 0},
        {"kind": "step_scheduled", "t": None, "step": 2, "tokens": {}, "num_running": 1, "num_waiting": 0},
        {"kind": "trace_start", "t": 0, "stage": 1, "model": "m", "block_size": 1, "num_blocks": 10**12},
        {"kind": "kv_sent", "t": 0.5},
        {"kind": HOSTILE, "t": 0.5},
        {"kind": "constructor", "t": 0.5},
        "not json " + HOSTILE,
        "[]",
        "",
        RequestFinished(0.6, HOSTILE, HOSTILE, 1),
        '{"kind":"request_fin',
    )
    trace.write_bytes(trace.read_bytes()[:-1])

    def act(page: Any) -> None:
        page.goto(page_of(trace))
        expect(page.locator("#time-title")).to_have_text("Step 1 at 0.200 s")
        notes = page.locator("#note_list li").all_text_contents()
        unknown = [f"{kind}, 1 ×" for kind in ("kv_sent", HOSTILE, "constructor")]
        for part in ("does not begin with trace_start", "cut off", *unknown):
            assert sum(part in note for note in notes) == 1, part
        faulty = sorted(int(number) for note in notes for number in re.findall(r"^Line (\d+)", note))
        assert faulty == [11, 12, 13, 17, 18, 19]
        titles = [cell.get_attribute("title") for cell in page.locator("#step_table td:first-child").all()]
        assert titles == ids
        page.select_option("#request", HOSTILE)
        expect(page.locator("#life_numbers")).to_contain_text(HOSTILE)
        assert page.locator("main img, main script").count() == 0

    browser.run(act)


def test_files_that_are_no_trace_are_named_so(browser: Any, tmp_path: Path) -> None:
    """Neither an empty file nor binary dirt is taken for a trace, inside the page or opened by it."""

    def act(page: Any) -> None:
        page.goto(page_of(path))
        for k, content in enumerate([b"\n", b"", b"hello\n", b"[1, 2]\n", b"\x00\xff\n{}\n", b"null\n"]):
            page.set_input_files("#file", {"name": f"{k}.jsonl", "mimeType": "text/plain", "buffer": content})
            expect(page.locator("#about")).to_contain_text(f"{k}.jsonl")
            expect(page.locator("#note_list li").first).to_contain_text("not a trace")
            expect(page.locator("#empty")).to_be_visible()
            expect(page.locator("#lanes")).to_be_hidden()

    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xff\x00 no trace")
    browser.run(act)
