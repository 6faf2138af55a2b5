"""Every exercise proves itself: the stub is not attempted, right answers pass, and each mistake is told what it is.

A new exercise is covered by its folder. Second spellings of its mistakes lie in ``second_spellings/<id>/``.
"""

from __future__ import annotations

import dataclasses
import importlib
import random
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure

from sixfold.exercises import child
from sixfold.exercises.advice import read_advice
from sixfold.exercises.catalog import Exercise, all_exercises
from sixfold.exercises.importer import load_file
from sixfold.exercises.lesson import read_hints
from sixfold.exercises.outcome import Finding
from sixfold.exercises.stub import blank_lines, make_solution, make_stub

EXERCISES = all_exercises()
SPELLINGS = Path(__file__).with_name("second_spellings")


def files(which: Callable[[Exercise], list[Path]]) -> Any:
    """A case for each exercise and each of its files."""
    pairs = [(exercise, path) for exercise in EXERCISES for path in which(exercise)]
    return pytest.mark.parametrize(
        ("exercise", "path"), pairs, ids=[f"{exercise.id}-{path.stem}" for exercise, path in pairs]
    )


@pytest.fixture(autouse=True)
def skip_compiled(request: pytest.FixtureRequest) -> None:
    """Checks run kernels in Triton's interpreter, in a process without a GPU; this process would compile them."""
    exercise = getattr(request.node, "callspec", None) and request.node.callspec.params.get("exercise")
    if exercise and exercise.kernel and torch.cuda.is_available():
        pytest.skip("kernels are compiled here")


each = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)


def check_of(exercise: Exercise) -> ModuleType:
    return load_file(exercise.folder / "check.py")


def examine(exercise: Exercise, path: Path) -> Finding:
    return child.examine(exercise, check_of(exercise), path, lambda **_: None)


def examine_text(exercise: Exercise, text: str, folder: Path) -> Finding:
    path = folder / f"{exercise.module_name}.py"
    path.write_text(text, encoding="utf-8")
    return examine(exercise, path)


def test_there_are_exercises() -> None:
    assert {"1.1", "1.2", "1.3", "1.4", "1.5", "1.6"} <= {exercise.id for exercise in EXERCISES}


@each
def test_stub_is_not_attempted(exercise: Exercise, tmp_path: Path) -> None:
    assert examine_text(exercise, make_stub(exercise), tmp_path).status == "not attempted"


@each
def test_engines_own_version_passes(exercise: Exercise, tmp_path: Path) -> None:
    finding = examine_text(exercise, make_solution(exercise), tmp_path)
    assert finding.status == "pass", finding
    assert finding.num_cases >= 3
    assert examine(exercise, exercise.folder / "solution.py").status == "pass"


@files(lambda exercise: exercise.alternatives)
def test_other_right_answer_passes(exercise: Exercise, path: Path) -> None:
    finding = examine(exercise, path)
    assert finding.status == "pass", finding


@files(lambda exercise: exercise.wrongs)
def test_mistake_fails_and_is_recognised_as_itself(exercise: Exercise, path: Path) -> None:
    finding = examine(exercise, path)
    assert finding.status == "fail", finding
    assert finding.mistake == path.stem
    assert finding.advice == read_advice(path).text


@files(lambda exercise: sorted((SPELLINGS / exercise.id).glob("wrong_*.py")))
def test_second_spelling_gets_the_same_advice(exercise: Exercise, path: Path) -> None:
    finding = examine(exercise, path)
    assert finding.status == "fail", finding
    assert finding.mistake == path.stem


@each
def test_every_mistake_has_a_second_spelling(exercise: Exercise) -> None:
    spelled = {path.stem for path in (SPELLINGS / exercise.id).glob("*.py")}
    assert spelled == {path.stem for path in exercise.wrongs}


@each
def test_folder_is_complete(exercise: Exercise) -> None:
    names = {path.name for path in exercise.folder.iterdir()}
    assert names >= {"meta.toml", "solution.py", "spec.py", "check.py", "hints.md", "show.py"}
    assert len(exercise.alternatives) >= 1
    assert 2 <= len(exercise.wrongs) <= 5
    assert set(exercise.misconceptions) == {path.stem for path in exercise.wrongs}
    assert len(set(exercise.misconceptions.values())) == len(exercise.wrongs)
    hints = read_hints(exercise)
    assert len(hints) == 3
    assert all(len(text) > 40 for text in hints)
    assert exercise.shapes
    assert all(len(row) == 3 for row in exercise.shapes)
    assert exercise.not_tested


@each
def test_prerequisites_come_before(exercise: Exercise) -> None:
    ids = [other.id for other in EXERCISES]
    for earlier in exercise.prerequisites:
        assert ids.index(earlier) < ids.index(exercise.id)


@each
def test_part_is_the_engines_own_symbol(exercise: Exercise) -> None:
    parts = importlib.import_module(f"stage{exercise.stage}.build").Parts
    defaults = {field.name: field.default for field in dataclasses.fields(parts)}
    own = getattr(importlib.import_module(exercise.module), exercise.name)
    assert defaults[exercise.part] is (None if exercise.kernel else own)  # kernels are imported where they run
    assert getattr(load_file(exercise.folder / "solution.py"), exercise.name) is own
    assert re.fullmatch(r"vllm/[\w/]+\.py:[\w.]+", exercise.vllm), "a path and a symbol of vLLM"


@each
def test_there_is_not_too_much_to_write(exercise: Exercise) -> None:
    lines = blank_lines(exercise)
    assert 1 <= len(lines) <= 25 * len(exercise.blanks)
    assert len(lines) <= 30


@each
def test_cases_are_the_same_each_time(exercise: Exercise) -> None:
    check = check_of(exercise)
    one, two = child.fresh_cases(check), child.fresh_cases(check)
    assert [(case.name, case.words, repr(case.inputs)) for case in one] == [
        (case.name, case.words, repr(case.inputs)) for case in two
    ]
    assert len({case.name for case in one}) == len(one)
    assert all(case.words for case in check.cases(random.Random(1)))


@each
def test_picture_is_drawn(exercise: Exercise) -> None:
    own = getattr(importlib.import_module(exercise.module), exercise.name)
    figure = load_file(exercise.folder / "show.py").show(own)
    assert isinstance(figure, Figure)
    assert figure.axes


def test_misconceptions_are_named_once() -> None:
    names = [name for exercise in EXERCISES for name in exercise.misconceptions.values()]
    assert len(names) == len(set(names))
