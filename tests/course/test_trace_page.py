"""The viewer's page is whole and safe by its making, and ``sixfold trace`` writes it, opens it, or checks the trace."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from sixfold.cli import main
from sixfold.viewer.page import OWN, SHARED, bundle, digest, embedded, make_page
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

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
START = TraceStart(0.0, 1e9, 1, "m", 64, 2, 2)
GOOD: list[Event] = [
    START,
    RequestAdded(0.1, "a", 3),
    BlocksTaken(0.2, "a", [0]),
    StepScheduled(0.2, 1, {"a": (0, 3)}, 1, 0),
    TokensSampled(0.3, 1, {"a": [5]}),
    RequestFinished(0.3, "a", "length", 1),
    BlocksFreed(0.3, "a", [0]),
]


def write(path: Path, *events: Event) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A trace without a fault."""
    return write(tmp_path / "steps.jsonl", *GOOD)


def test_the_page_is_whole_and_takes_nothing_from_outside() -> None:
    page = make_page('{"kind":"x"}\n', HOSTILE)
    addresses = set(re.findall(r"\w+://[^\s\"'<>]*", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<(?:link|img|iframe|script src)|url\(|@import|^\s*(?:import|export) ", page, re.MULTILINE)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", page)
    assert not re.search(r"<[^>]* (?:on\w+|style)=", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))
    assert page.count("</script>") == 2
    assert "{{" not in page.split("<style>")[0]


def test_the_policy_names_the_one_script_and_the_one_style() -> None:
    page = make_page()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert set(policy[1].split("; ")) == {
        "default-src 'none'",
        f"script-src '{digest(script)}'",
        f"style-src '{digest(style)}'",
        "base-uri 'none'",
    }


def test_data_cannot_leave_its_element() -> None:
    value = {"name": HOSTILE, "text": "<!-- <script \u2028 é 🦙"}
    assert "<" not in embedded(value)
    assert json.loads(embedded(value)) == value


def test_modules_become_one_script() -> None:
    first = "export const A = 1;\nexport function f() {\n  return A;\n}\nconst hidden = 2;"
    second = 'import { A, f } from "./one.js";\nexport class B {}'
    script = bundle([("one.js", first), ("two.js", second)])
    assert "export" not in script
    assert "import" not in script
    assert "return { A, f };" in script
    assert "const { A, f } = module_one;" in script


def test_every_module_comes_after_those_it_needs() -> None:
    """``bundle`` runs them in order, so one that came too early would be missing."""
    script = make_page()
    order = [name.removesuffix(".js") for name in (*SHARED, *OWN)]
    for place, name in enumerate(order):
        body = script.split(f"const module_{name} = ")[1].split("\n})();")[0]
        assert set(re.findall(r"= module_(\w+);", body)) <= set(order[:place])


def test_check_prints_what_is_wrong(good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(good), "--check"]) == 0
    assert "every rule is kept (steps: 1, requests: 1)" in capsys.readouterr().out
    assert not good.with_suffix(".html").exists()
    double = [RequestAdded(0.1, "a", 3), RequestAdded(0.1, "b", 3), BlocksTaken(1, "a", [0]), BlocksTaken(1, "b", [0])]
    bad = write(tmp_path / "bad.jsonl", START, *double)
    assert main(["trace", str(bad), "--check"]) == 1
    assert "b takes block 0 while a holds it" in capsys.readouterr().out
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(good.read_bytes()[:-10])
    assert main(["trace", str(cut), "--check"]) == 1
    assert "cut off" in capsys.readouterr().out


def test_where_the_page_goes(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    page = tmp_path / "my page.html"
    assert main(["trace", str(good), "--out", str(page)]) == 0
    assert opened == [page.as_uri()]
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    before = good.read_bytes()
    assert main(["trace", str(good), "--out", str(good)]) == 2
    assert main(["trace", str(tmp_path / "none.jsonl")]) == 1
    assert main(["trace", str(good), "--out", str(tmp_path / "no" / "where.html")]) == 1
    assert good.read_bytes() == before
    assert len(opened) == 1
