"""What a stage adds, on small trees and on the stages that are here."""

from __future__ import annotations

import ast

import pytest

from sixfold.cli import main
from sixfold.commands.diff import between
from sixfold.errors import UsageError
from sixfold.stage_diff import MAX_BUILD_DIFF, MAX_LINES_LATER, code_lines, describe, read_module, too_large

OLD_POOL = '"""A pool."""\n\nclass Pool:\n    """It."""\n\ndef drain():\n    """D."""\n'
NEW_POOL = (
    '"""A better pool."""\nfrom stage1.pool import drain\nfrom stage1.model.ops import TorchOps\n'
    'from stage2.x import y\n\nclass Pool:\n    """It."""\n\nclass Free:\n    """F."""\n'
)


def test_code_lines_leave_out_comments_docstrings_and_blanks() -> None:
    text = '"""Doc.\n\nMore.\n"""\n\n# why\nx = """a\nb"""\n\n\n'
    text += 'def f():\n    """F."""\n    return (  # here\n        1\n    )\n'
    assert code_lines(text, ast.parse(text)) == 6


def test_new_replaced_and_reused_are_told_apart() -> None:
    before = [read_module(1, "pool.py", OLD_POOL), read_module(1, "build.py", '"""B."""\na = 1\n')]
    after = [
        read_module(2, "pool.py", NEW_POOL),
        read_module(2, "graph.py", '"""Graphs."""\n'),
        read_module(2, "build.py", '"""B."""\na = 2\n'),
    ]
    text = "\n".join(describe(2, before, after))
    assert text.startswith("Stage 2: 3 files, 6 lines of code")
    assert "New files (1)\n  graph.py     0  Graphs." in text
    assert "Files that take an earlier one's place (2)" in text
    assert "before: stage1/pool.py, 2 lines; adds Free; rewrites Pool; keeps drain" in text
    assert "Reused by import (2 modules)\n  stage1.model.ops: TorchOps\n  stage1.pool: drain" in text
    assert "-a = 1\n+a = 2" in text


def test_of_several_earlier_versions_the_latest_counts() -> None:
    before = [read_module(1, "pool.py", OLD_POOL), read_module(2, "pool.py", '"""P."""\nx = 1\n')]
    assert "before: stage2/pool.py, 1 lines" in "\n".join(
        describe(3, before, [read_module(3, "pool.py", '"""P."""\n')])
    )


def test_long_wiring_is_cut() -> None:
    old = read_module(1, "build.py", '"""B."""\n' + "".join(f"a{i} = 1\n" for i in range(200)))
    new = read_module(2, "build.py", '"""B."""\n' + "".join(f"b{i} = 1\n" for i in range(200)))
    lines = describe(2, [old], [new])
    assert "more lines" in lines[-1]
    assert len(lines) < MAX_BUILD_DIFF + 20


def test_a_stage_that_is_too_much_is_named() -> None:
    large = read_module(2, "a.py", '"""A."""\n' + "a = 1\n" * (MAX_LINES_LATER + 1))
    assert "stage 2 adds 4,501 lines of code; at most 4,500" in too_large(2, [large])
    assert too_large(2, [read_module(2, "a.py", '"""A."""\na = 1\n')]) == ""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [(1, 2, "stage 2 is not here yet (present: 1); `sixfold diff 0 1`"), (2, 1, "an earlier stage to a later one"),
     (1, 1, "not 1 to 1"), (-1, 1, "not -1 to 1"), (0, 7, "0 to 6")],
)  # fmt: skip
def test_wrong_use_is_explained(before: int, after: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        between(before, after, [1])
    assert message in str(caught.value)


def test_several_stages_are_described_in_order() -> None:
    assert list(between(1, 3, [1, 2, 3])) == [2, 3]
    assert list(between(0, 1, [1, 2])) == [1]


def test_stage_1_is_listed_and_within_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "0", "1"]) == 0
    shown = capsys.readouterr().out
    assert "scheduler.py" in shown
    assert "Reused by import: nothing, it is the first stage" in shown
