"""The form of a master: what begins a cell, what the front matter must say, and how a broken form is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.builder.master import Master, MasterError, parse_master, template_faults

TEXT = (Path(__file__).parent / "example" / "01z_example.md").read_text(encoding="utf-8")
FRONT = TEXT[: TEXT.index("<!--")]


def parse(body: str) -> Master:
    return parse_master("01z_example", FRONT + body)


def test_blocks_of_every_kind_are_told_apart() -> None:
    master = parse(
        "<!-- cell pain -->\n# A\n\n```bash\n<!-- cell -->\n```\n\nstill A\n\n```python predict\nx = 1\n\ny = 2\n```\n"
        "after\n<!-- exercise 1.2 -->\nseen\n<!-- vllm -->\n<!-- instructor -->\nI\n```python instructor\nz = 3\n```\n"
    )
    assert [(b.kind, b.name, b.exercise, b.source) for b in master.blocks] == [
        ("text", "pain", "", "# A\n\n```bash\n<!-- cell -->\n```\n\nstill A"),
        ("code", "predict", "", "x = 1\n\ny = 2"),
        ("text", "", "", "after"),
        ("exercise", "", "1.2", "seen"),
        ("vllm", "", "", ""),
        ("text", "instructor", "", "I"),
        ("code", "instructor", "", "z = 3"),
    ]
    assert (master.id, master.exercises) == ("01z", ["1.2"])


def test_long_fence_holds_a_short_one() -> None:
    (block,) = parse("````text\n```python\nx\n```\n````\n").blocks
    assert (block.kind, block.source) == ("text", "````text\n```python\nx\n```\n````")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("text\n<!-- exercize 1.2 -->\n", "unknown marker `exercize 1.2`"),
        ("<!-- exercise -->\n", "unknown marker `exercise `"),
        ("<!-- cell panic -->\nx\n", "unknown name panic; there are break, example"),
        ("```python slow\nx\n```\n", "unknown name slow"),
        ("```python\nx = 1\n", "a fence is never closed"),
        ("<!-- cell pain -->\n\n<!-- cell idea -->\nx\n", "this cell is empty"),
        ("```python\n```\n", "this cell is empty"),
    ],
)
def test_broken_form_is_named_with_its_line(body: str, message: str) -> None:
    with pytest.raises(MasterError, match=r"^01z_example\.md:\d+: ") as caught:
        parse(body)
    assert message in str(caught.value)


def test_line_numbers_count_from_the_file_start() -> None:
    with pytest.raises(MasterError, match=f":{FRONT.count(chr(10)) + 2}: unknown marker"):
        parse("text\n<!-- nonsense -->\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("+++\n", "", "begins with TOML"),
        ("stage = 1\n", "", "stage is missing"),
        ("stage = 1\n", "stage = 1\nstages = 2\n", "stages is unknown; there are title, stage"),
        ("stage = 1\n", "stage = true\n", "stage is True"),
        ("stage = 1\n", 'stage = "1"\n', "stage is '1'"),
        ('["Python and a little PyTorch"]', "[1]", r"prerequisites is \[1\]"),
        ("stage = 1\n", "stage = \n", "front matter: "),
    ],
)
def test_wrong_front_matter_is_named(old: str, new: str, message: str) -> None:
    with pytest.raises(MasterError, match=message):
        parse_master("01z_example", TEXT.replace(old, new, 1))


@given(
    st.lists(
        st.sampled_from(["a", "", "```python", "```", "~~~", "````", "```bash", "<!-- cell -->", "<!-- vllm -->", " x"])
    )
)
def test_no_line_is_lost(lines: list[str]) -> None:
    try:
        master = parse("\n".join(lines))
    except MasterError:
        return
    kept = sum(block.source.split("\n").count("a") for block in master.blocks)
    assert kept == lines.count("a")


def test_example_keeps_the_template() -> None:
    assert template_faults(parse_master("01z_example", TEXT)) == []
