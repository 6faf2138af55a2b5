"""Finding exercises: one folder each, named by an id.

Owns ``meta.toml``, read and checked. Does not load the exercise's code, nor torch: listing all of them is quick.
"""

from __future__ import annotations

import difflib
import importlib.util
import itertools
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from sixfold.errors import UsageError
from sixfold.stages import available

TRACKS = ("core", "stretch")


@dataclass(frozen=True)
class Exercise:
    """An exercise's ``meta.toml``, and its ``folder``."""

    id: str  # "1.2": the stage, and its place in it
    title: str
    stage: int
    minutes: int
    difficulty: int  # 1..5
    track: str  # "core" or "stretch"
    symbol: str  # "stage1.model.rope:apply_rope", what the learner's file defines anew
    blanks: list[str]  # functions and methods whose bodies are to be written
    part: str  # the field of the stage's Parts that takes the symbol
    contract: str  # what to write, in words
    folder: Path
    vllm: str = ""  # "path:Symbol", where vLLM does it
    prerequisites: list[str] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)  # further definitions of the module that go into the stub
    shapes: list[list[str]] = field(default_factory=list)  # rows of name, shape, meaning
    not_tested: str = ""
    misconceptions: dict[str, str] = field(default_factory=dict)  # wrong_name → id of the misconception
    factory: bool = True  # whether the engine calls the symbol once to get the part
    kernel: bool = False  # whether it is a Triton kernel: interpreted where there is no GPU

    @property
    def module(self) -> str:
        """Where the engine's own version is."""
        return self.symbol.partition(":")[0]

    @property
    def name(self) -> str:
        """The function or class that a learner's file defines."""
        return self.symbol.partition(":")[2]

    @property
    def module_name(self) -> str:
        """What a learner's file is called as a module: ``ex_1_2``."""
        return "ex_" + re.sub(r"\W", "_", self.id)

    @property
    def wrongs(self) -> list[Path]:
        """The planted mistakes, by name."""
        return sorted(self.folder.glob("wrong_*.py"))

    @property
    def alternatives(self) -> list[Path]:
        """Other right answers, by name."""
        return sorted(self.folder.glob("alt_*.py"))


def all_exercises(folders: Sequence[Path] | None = None) -> list[Exercise]:
    """Every exercise of the stages that are here (or in ``folders``), in the order of their ids.

    Raises:
        ValueError: a ``meta.toml`` is wrong, or two exercises have one id.
    """
    metas = [
        meta for folder in (exercise_folders() if folders is None else folders) for meta in folder.glob("*/meta.toml")
    ]
    found = sorted((load_exercise(meta.parent) for meta in metas), key=lambda exercise: _order(exercise.id))
    for one, next_one in itertools.pairwise(found):
        if one.id == next_one.id:
            raise ValueError(f"exercise {one.id} is both in {one.folder} and in {next_one.folder}: rename one")
    return found


def find(exercise_id: str, folders: Sequence[Path] | None = None) -> Exercise:
    """The exercise called ``exercise_id``.

    Raises:
        UsageError: there is none; the message names the nearest ones, or all.
    """
    exercises = {exercise.id: exercise for exercise in all_exercises(folders)}
    wanted = str(exercise_id).strip()
    if wanted in exercises:
        return exercises[wanted]
    if not exercises:
        raise UsageError("no exercises are here: they come with the repository, not with the installed package")
    nearest = difflib.get_close_matches(wanted, exercises, n=3, cutoff=0.4)
    if not nearest:
        raise UsageError(f"there is no exercise {wanted!r}; there are {', '.join(exercises)}: `sixfold progress`")
    listed = "; ".join(f"{i} ({exercises[i].title})" for i in nearest)
    raise UsageError(f"there is no exercise {wanted!r}; did you mean: {listed}?")


def exercise_folders() -> list[Path]:
    """``exercises/`` of every stage that is here; stages are not imported."""
    found = []
    for number in available():
        spec = importlib.util.find_spec(f"stage{number}")
        if spec is not None and spec.origin is not None:
            found.append(Path(spec.origin).parents[1] / "exercises")
    return [folder for folder in found if folder.is_dir()]


def load_exercise(folder: Path) -> Exercise:
    """Read ``folder/meta.toml``.

    Raises:
        ValueError: a field is missing, unknown, or of the wrong kind.
    """
    path = folder / "meta.toml"
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    hints = get_type_hints(Exercise)
    known = {f.name: f for f in fields(Exercise) if f.name != "folder"}
    if unknown := sorted(given.keys() - known):
        raise ValueError(f"{path}: unknown field {unknown[0]!r}; possible: {', '.join(known)}")
    optional = {"vllm", "prerequisites", "keep", "shapes", "not_tested", "misconceptions", "factory", "kernel"}
    if missing := [name for name in known if name not in given and name not in optional]:
        raise ValueError(f"{path}: {missing[0]!r} is missing")
    for name, value in given.items():
        if not _is_kind(value, hints[name]):
            raise ValueError(f"{path}: {name} is {value!r}, not of the type {hints[name]}")
    exercise = Exercise(folder=folder, **given)
    _check_values(path, exercise)
    return exercise


def _check_values(path: Path, exercise: Exercise) -> None:
    wrong_names = [wrong.stem for wrong in exercise.wrongs]
    demands = {
        "id must be STAGE.NUMBER, such as 1.2": re.fullmatch(rf"{exercise.stage}\.\d+[a-z]?", exercise.id),
        "difficulty must be 1 to 5": 1 <= exercise.difficulty <= 5,
        f"track must be one of {', '.join(TRACKS)}": exercise.track in TRACKS,
        "symbol must be module:Name": re.fullmatch(r"[\w.]+:\w+", exercise.symbol),
        "blanks must name at least one function": exercise.blanks,
        "misconceptions must name wrong_*.py files of the folder": set(exercise.misconceptions) <= set(wrong_names),
    }
    for demand, kept in demands.items():
        if not kept:
            raise ValueError(f"{path}: {demand}")


def _is_kind(value: Any, kind: Any) -> bool:
    """Whether ``value`` is of the (possibly nested) type ``kind``."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is list:
        return isinstance(value, list) and all(_is_kind(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_kind(item, arguments[1]) for item in value.values())
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _order(exercise_id: str) -> tuple[int, int, str]:
    stage, _, place = exercise_id.partition(".")
    digits = re.match(r"\d*", place)
    return int(stage), int(digits[0] if digits and digits[0] else 0), place
