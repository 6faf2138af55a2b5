"""Local links lead somewhere: in documents, masters and built notebooks, to files, headings and glossary terms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)|<img[^>]*\ssrc=\"([^\"]+)\"|!\[[^\]\n]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*\s*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def documents() -> list[Path]:
    """Every text with links: documents, masters, exercises' hints, learner builds."""
    patterns = ("*.md", "docs/**/*.md", "stages/*/*.md", "stages/*/exercises/*/*.md", "course/masters/*.md",
                "tests/course/example/*.md", "notebooks/*.ipynb")  # fmt: skip
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def text_of(path: Path) -> str:
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def links(text: str) -> Iterator[str]:
    """Targets of links and pictures; what stands in code is an example, not a link."""
    yield from ("".join(groups) for groups in _LINK.findall(_CODE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The headings of a document, as links name them."""
    without_fences = _CODE.sub(lambda match: "" if "\n" in match[0] else match[0], text)
    headings = re.findall(r"^#{1,6} (.*?)\s*#*$", without_fences, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path, text: str, folder: Path) -> list[str]:
    """The local links of ``text`` that lead nowhere, as seen from ``folder``."""
    broken = []
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (folder / name).resolve() if name else path
        there = target.exists() and (target.is_relative_to(ROOT) or not name)
        if not there or (anchor and anchor not in anchors(text_of(target) if name else text)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_local_links_resolve(path: Path) -> None:
    # A master and an exercise's hints are read inside a notebook, so links are written as seen from there.
    in_notebook = bool({"masters", "exercises", "example"} & set(path.parts))
    assert broken_links(path, text_of(path), ROOT / "notebooks" if in_notebook else path.parent) == []


def test_glossary_terms_are_unique_and_explained() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    terms = re.findall(r"^### (.+)\n\n(.*)$", text, re.MULTILINE)
    assert len(terms) == text.count("\n### ") > 50
    assert len({term.lower() for term, _ in terms}) == len(terms)
    assert all(30 < len(meaning) < 400 and meaning.endswith(".") for _, meaning in terms)


@pytest.mark.parametrize(
    "term",
    ["request", "step", "prefill", "decode", "token-budget", "block", "slot", "block-table", "slot-mapping", "kv-cache",
     "gqa", "rope", "rmsnorm", "logits", "ttft", "itl", "static-batching", "flattened-batch", "top-p", "trace"],
)  # fmt: skip
def test_glossary_has_the_terms_of_stage_1(term: str) -> None:
    assert term in anchors(GLOSSARY.read_text(encoding="utf-8"))


def test_every_notebook_links_the_glossary() -> None:
    for path in sorted((ROOT / "course" / "masters").glob("*.md")):
        assert "../docs/glossary.md#" in path.read_text(encoding="utf-8"), f"{path.name} links no term"


def test_planted_broken_links_are_found(tmp_path: Path) -> None:
    text = (
        "# One two\n[a](README.md) [b](#one-two) [c](https://x.org/#y) `[d](no.md)` [e](docs/glossary.md#rope)\n"
        "```text\n[f](no.md)\n```\n[g](no.md) [h](#no) [i](docs/glossary.md#nope) ![j](no.png) [k](../../etc/passwd)\n"
    )
    found = broken_links(ROOT / "README.md", text, ROOT)
    assert found == ["no.md", "#no", "docs/glossary.md#nope", "no.png", "../../etc/passwd"]


def test_anchors_are_those_of_the_renderer() -> None:
    assert anchors("## KV cache\n### query, key, value\n```\n# no\n```\n# What `x` is?\n") == {
        "kv-cache", "query-key-value", "what-x-is"
    }  # fmt: skip
