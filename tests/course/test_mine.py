"""The learner's versions run in the engine: each part is really reached, and only what passed is taken."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold.exercises import mine, runner, store
from sixfold.exercises.catalog import Exercise, all_exercises, find
from sixfold.exercises.importer import load_file
from sixfold.exercises.outcome import Outcome
from sixfold.exercises.stub import NotAttempted, make_solution, make_stub
from stage1.llm import LLM
from stage1.params import SamplingParams

bed = load_file(Path(__file__).with_name("mine_bed.py"))

EXERCISES = [exercise for exercise in all_exercises() if exercise.stage == 1]
ROPE = find("1.2")
TINY: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32"}
SAMPLING = SamplingParams(temperature=0.8, top_p=0.9, seed=3, max_tokens=4, ignore_eos=True)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))
    return tmp_path / "work"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the exercises that are really checked, in order."""
    done: list[str] = []

    def counting(exercise: Exercise) -> Outcome:
        done.append(exercise.id)
        return runner.check(exercise)

    monkeypatch.setattr(mine, "check", counting)
    return done


def tokens(parts: Any) -> list[list[int]]:
    with LLM(parts=parts, **TINY) as llm:
        outputs = llm.generate([[5, 9, 3], [7, 7, 2, 8, 1]], SAMPLING, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def failure(parts: Any) -> str:
    """The error with which the engine ends requests, or that it raises."""
    try:
        with LLM(parts=parts, **TINY) as llm:
            outputs = llm.generate([[5, 9, 3]], SAMPLING, use_tqdm=False)
    except NotAttempted as error:
        return str(error)
    return str(outputs[0].outputs[0].error)


def with_text(exercise: Exercise, text: str, folder: Path) -> Any:
    """The stage's parts with a file of this text in it."""
    return bed.with_text(1, exercise, text, folder)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_engine_runs_into_an_empty_blank(exercise: Exercise, tmp_path: Path) -> None:
    assert f"exercise {exercise.id}: this body is still to be written" in failure(
        with_text(exercise, make_stub(exercise), tmp_path)
    )


@pytest.fixture(scope="module")
def reference_tokens() -> list[list[int]]:
    return tokens(None)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_solved_part_gives_the_same_tokens(
    exercise: Exercise, tmp_path: Path, reference_tokens: list[list[int]]
) -> None:
    parts = bed.solved(1, exercise, tmp_path)
    assert getattr(parts, exercise.part).__module__ == exercise.module_name
    assert tokens(parts) == reference_tokens


def test_all_solved_parts_together(tmp_path: Path, reference_tokens: list[list[int]]) -> None:
    for exercise in EXERCISES:
        path, _ = store.write_file(exercise, make_solution(exercise))
        store.remember_check(exercise, "pass", store.digest(exercise, path))
    parts, owners = mine.my_parts(1)
    assert owners == {exercise.part: "yours" for exercise in EXERCISES}
    assert tokens(parts) == reference_tokens


def test_nothing_attempted_is_all_reference(checks: list[str]) -> None:
    parts, owners = mine.my_parts(1)
    assert set(owners.values()) == {"reference"}
    assert parts == importlib.import_module("stage1.build").Parts()
    states = mine.survey(1)
    assert mine.paths_of(states) == {}
    assert "0 of 6 parts are yours" in mine.banner(states)
    assert "exercise 1.2 is not attempted yet" in mine.banner(states)
    assert checks == []


def test_edited_file_is_checked_again_once(checks: list[str]) -> None:
    def rotate() -> mine.PartState:
        return next(state for state in mine.survey(1) if state.part == "rotate")

    store.write_file(ROPE, make_solution(ROPE))
    assert rotate().owner == "yours"
    assert "checked again just now" in rotate().note or rotate().note == "work/ex_1_2.py"
    assert checks == ["1.2"]  # the second and third time the pass was remembered

    wrong = (ROPE.folder / "wrong_direction.py").read_text(encoding="utf-8")
    store.write_file(ROPE, wrong)
    assert rotate().owner == "reference"
    assert rotate().note == "work/ex_1_2.py does not pass: `sixfold check 1.2` says why"
    assert checks == ["1.2", "1.2"]

    store.write_file(ROPE, make_solution(ROPE))  # what passed before needs no check
    assert rotate().owner == "yours"
    assert mine.paths_of([rotate()]) == {"rotate": str(store.exercise_file(ROPE))}
    assert checks == ["1.2", "1.2"]


def test_stub_in_the_folder_is_not_attempted(checks: list[str]) -> None:
    store.write_file(ROPE, make_stub(ROPE))
    for _ in range(2):
        assert "exercise 1.2 is not attempted yet" in mine.banner(mine.survey(1))
    assert checks == ["1.2"]


def test_a_changed_check_asks_again(tmp_path: Path) -> None:
    path, _ = store.write_file(ROPE, make_solution(ROPE))
    copy = tmp_path / "1.2_rope"
    copy.mkdir()
    for name in ("check.py", "spec.py"):
        (copy / name).write_bytes((ROPE.folder / name).read_bytes())
    moved = dataclasses.replace(ROPE, folder=copy)
    assert store.digest(moved, path) == store.digest(ROPE, path)
    (copy / "spec.py").write_text("# another\n", encoding="utf-8")
    assert store.digest(moved, path) != store.digest(ROPE, path)


@pytest.mark.parametrize(
    ("part", "name", "text", "message"),
    [
        ("rotate", "other.py", "", "belongs to no exercise of stage 1"),
        ("sampler", "ex_1_2.py", "", "belongs to no exercise of stage 1"),
        ("rotate", "ex_1_2.py", "x = 1\n", "does not define apply_rope"),
    ],
)
def test_wrong_paths_are_refused(tmp_path: Path, part: str, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        mine.parts_from(1, {part: str(tmp_path / name)})


def test_damaged_records_count_as_none(work: Path) -> None:
    path, _ = store.write_file(ROPE, make_solution(ROPE))
    store.remember_check(ROPE, "pass", store.digest(ROPE, path))
    (record,) = (work / "records").iterdir()
    for text in ("{", "[1]", '{"passed": 3, "attempts": "x", "more": 1}'):
        record.write_text(text, encoding="utf-8")
        assert store.record_of(ROPE) == store.Record()


def test_versions_that_passed_are_kept(work: Path) -> None:
    path, copy = store.write_file(ROPE, "first = 1\n")
    assert copy is None
    assert store.write_file(ROPE, "second = 2\n")[1] is None
    store.remember_check(ROPE, "pass", store.digest(ROPE, path))
    assert store.write_file(ROPE, "second = 2\n")[1] is None
    copies = [store.keep_copy(path), store.write_file(ROPE, "third = 3\n")[1]]
    assert [kept.read_text() for kept in copies if kept] == ["second = 2\n"] * 2
    assert path.read_text() == "third = 3\n"
    assert {file.parent for file in work.rglob("*.py")} == {work, work / "old"}


def test_server_runs_the_parts_and_says_whose(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from stage1 import serving
    from stage1.config import Settings

    seen: dict[str, Any] = {}

    def serve_http(settings: Settings, start: Callable[[], Any], routers: Any, *, parts: Any) -> None:
        client = start()
        seen.update(parts=parts, stage=client.stage)
        client.shutdown()

    built: list[Any] = []
    real = serving.build

    def build(settings: Settings, parts: Any, sinks: Any) -> Any:
        built.append(parts)
        return real(settings, parts, sinks)

    monkeypatch.setattr(serving, "serve_http", serve_http)
    monkeypatch.setattr(
        serving.start_client, "__kwdefaults__", {**serving.start_client.__kwdefaults__, "build_core": build}
    )
    parts = with_text(ROPE, make_solution(ROPE), tmp_path)
    serving.serve(Settings.from_keywords(serving.SERVER_CONFIGS, TINY), parts=parts, owners={"rotate": "yours"})
    assert seen == {"parts": {"rotate": "yours"}, "stage": 1}
    assert built == [parts]


def test_workers_load_from_paths_alone(tmp_path: Path) -> None:
    path, _ = store.write_file(ROPE, make_solution(ROPE))
    parts = mine.parts_from(1, {"rotate": str(path)})
    assert parts.rotate.__code__.co_filename == str(path)
    assert load_file(path, ROPE.module_name).apply_rope is not parts.rotate


def test_a_part_that_a_later_stage_keeps_is_yours_there_too() -> None:
    """Stage 2 has its own KV manager and scheduler; operations, rotation and sampler are still stage 1's."""
    stage_of = {state.part: state.exercise.stage for state in mine.survey(2)}
    assert {"ops", "rotate", "attention", "sampler"} <= {part for part, stage in stage_of.items() if stage == 1}
    assert stage_of["kv_manager"] == 2
    assert stage_of.get("scheduler", 2) == 2
