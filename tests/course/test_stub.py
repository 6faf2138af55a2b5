"""Stubs and solutions are cut out of the engine's source, and differ in the blanked bodies only."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.exercises.catalog import Exercise, all_exercises, load_exercise
from sixfold.exercises.importer import load_file
from sixfold.exercises.imports import import_lines
from sixfold.exercises.stub import NotAttempted, make_solution, make_stub

ROOT = Path(__file__).parents[2]
EXERCISES = all_exercises()
each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)

MODULE = '''"""A module."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from stage1.interfaces import Hit, Sampler

if TYPE_CHECKING:
    from stage1.request import Request, Status

# How many there are,
# at most.
LIMIT = 3  # of them
OTHER = 4


# Above the decorator.
@staticmethod
def helper(
    x: Sequence[int],
) -> int:
    # what it does
    return x[0] + OTHER


class Thing:
    """A thing."""

    size: int = 2  # of it

    # before the method
    def work(self, req: Request) -> Hit:
        """Work.

        More words.
        """
        # a comment in the body
        total = math.pi

        return Hit(LIMIT + total)  # the end

    # between

    def rest(self) -> None:
        """Stays."""
        torch.zeros(helper([1]))

    def plain(self):
        # no docstring
        return 1


def outside() -> None:
    os.getcwd()
'''


STUB = '''from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from sixfold.exercises.stub import NotAttempted
from stage1.interfaces import Hit
from stage_planted import OTHER

if TYPE_CHECKING:
    from stage1.request import Request

# How many there are,
# at most.
LIMIT = 3  # of them


# Above the decorator.
@staticmethod
def helper(
    x: Sequence[int],
) -> int:
    # what it does
    raise NotAttempted("1.9")


class Thing:
    """A thing."""

    size: int = 2  # of it

    # before the method
    def work(self, req: Request) -> Hit:
        """Work.

        More words.
        """
        raise NotAttempted("1.9")

    # between

    def rest(self) -> None:
        """Stays."""
        torch.zeros(helper([1]))

    def plain(self):
        # no docstring
        raise NotAttempted("1.9")
'''


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that makes an exercise over ``MODULE``."""
    (tmp_path / "stage_planted.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(**changes: Any) -> Exercise:
        given: dict[str, Any] = {"symbol": "stage_planted:Thing", "keep": [], "blanks": ["work"], **changes}
        return dataclasses.replace(EXERCISES[0], id="1.9", title="A title", contract="What to write.", **given)

    yield make
    sys.modules.pop("stage_planted", None)
    importlib.invalidate_caches()


def test_only_named_bodies_are_blanked(planted: Any) -> None:
    stub = make_stub(planted(blanks=["work", "plain", "helper"], keep=["helper", "LIMIT"]))
    assert stub.endswith(STUB)
    assert stub.startswith('"""Exercise 1.9: A title.\n\nWhat to write.\n\nTo write: `work`, `plain`, `helper`.\n')
    assert "sixfold check 1.9" in stub


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symbol": "stage_planted:Missing"}, "no function work"),
        ({"symbol": "stage_planted:outside", "blanks": ["outside"], "keep": ["gone"]}, "does not define gone"),
        ({"symbol": "no_such_module:Thing"}, "no module no_such_module"),
        ({"blanks": ["nothing"]}, "no function nothing to blank"),
    ],
)
def test_wrong_metadata_is_named(planted: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_stub(planted(**changes))


@each
def test_stub_equals_solution_outside_the_blanks(exercise: Exercise) -> None:
    stub, solution = without_header(make_stub(exercise)), without_header(make_solution(exercise))
    changes = [
        line for line in difflib.ndiff(solution.splitlines(), stub.splitlines()) if line[0] in "+-" and line[2:].strip()
    ]
    added = [line[2:].strip() for line in changes if line[0] == "+"]
    allowed = {f'raise NotAttempted("{exercise.id}")', "from sixfold.exercises.stub import NotAttempted"}
    assert set(added) == allowed
    assert added.count(f'raise NotAttempted("{exercise.id}")') == len(exercise.blanks)
    bodies = {line.strip() for line in blanked_source(exercise)}
    assert {line[2:].strip() for line in changes if line[0] == "-"} <= bodies


@each
def test_stub_and_solution_import_and_keep_the_interface(exercise: Exercise, tmp_path: Path) -> None:
    own = getattr(importlib.import_module(exercise.module), exercise.name)
    for name, text in (("stub", make_stub(exercise)), ("solution", make_solution(exercise))):
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        symbol = getattr(load_file(path), exercise.name)
        assert symbol is not own
        assert sorted(vars(symbol).get("__annotations__", {})) == sorted(vars(own).get("__annotations__", {}))
        assert [n for n in dir(own) if not n.startswith("_")] == [n for n in dir(symbol) if not n.startswith("_")]


def test_stubs_are_formatted_and_clean(tmp_path: Path) -> None:
    for exercise in EXERCISES:
        (tmp_path / f"stub_{exercise.module_name}.py").write_text(make_stub(exercise), encoding="utf-8")
        (tmp_path / f"solved_{exercise.module_name}.py").write_text(make_solution(exercise), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    config = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", str(tmp_path)]
    # A stub's imports are those that its answer needs.
    for command in (["format", "--diff"], ["check", "--ignore", "F401"]):
        done = subprocess.run([*ruff, *command, *config], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    solved = [str(path) for path in tmp_path.glob("solved_*.py")]
    done = subprocess.run([*ruff, "check", *config[:3], *solved], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_blank_raises_its_exercise() -> None:
    error = NotAttempted("1.2")
    assert error.exercise_id == "1.2"
    assert "1.2" in str(error)


def test_imports_are_merged_sorted_and_wrapped() -> None:
    names = [f"name_{i:02}" for i in range(15)]
    lines = import_lines("import b\nimport a\n", {"a", "b"}, {"stage1.x": names, "sixfold.y": ["z", "A", "CONST"]})
    assert lines.startswith(
        "import a\nimport b\n\nfrom sixfold.y import CONST, A, z\nfrom stage1.x import (\n    name_00,"
    )


def test_hostile_metadata_stays_in_the_docstring(planted: Any) -> None:
    exercise = dataclasses.replace(planted(), contract='Write \\n and a quote "', title='"Quoted"')
    assert "Write" in (ast.get_docstring(ast.parse(make_stub(exercise))) or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("minutes = 15", 'minutes = "15"'), "minutes is"),
        (("minutes = 15", ""), "'minutes' is missing"),
        (("minutes = 15", "minutes = 15\nminuets = 15"), "unknown field 'minuets'"),
        (('track = "core"', 'track = "hard"'), "track must be"),
        (("difficulty = 2", "difficulty = 9"), "difficulty must be"),
        (('id = "1.2"', 'id = "2.2"'), "id must be"),
        (("wrong_reused", "wrong_other"), "misconceptions must name"),
        (('blanks = ["apply_rope"]', "blanks = [3]"), "blanks is"),
        (("minutes = 15", "minutes = "), "Invalid value"),
    ],
)
def test_metadata_is_checked(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (exercise,) = (exercise for exercise in EXERCISES if exercise.id == "1.2")
    for wrong in exercise.wrongs:
        (tmp_path / wrong.name).touch()
    text = (exercise.folder / "meta.toml").read_text(encoding="utf-8")
    (tmp_path / "meta.toml").write_text(text, encoding="utf-8")
    assert load_exercise(tmp_path).id == "1.2"
    assert change[0] in text
    (tmp_path / "meta.toml").write_text(text.replace(*change), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_exercise(tmp_path)


def without_header(text: str) -> str:
    return text.split('"""', 2)[2]


def blanked_source(exercise: Exercise) -> list[str]:
    from sixfold.exercises.stub import blank_lines, module_source

    lines = module_source(exercise).splitlines()
    return [lines[number - 1] for number in blank_lines(exercise)]
