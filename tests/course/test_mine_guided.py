"""The learner's masks, packing and endings run in stage 3's engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.exercises.catalog import Exercise, find
from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage3.llm import LLM

bed = load_file(Path(__file__).with_name("mine_bed.py"))

EXERCISES = [find("3.4"), find("3.5"), find("3.6")]
SETTINGS: dict[str, Any] = {
    "model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32", "device": "cpu",
}  # fmt: skip
CONSTRAINTS: list[dict[str, Any] | None] = [
    None, {"regex": r"(é|🦙|[0-9]){3,5}"}, {"choice": ["no", "nope", "maybe"]}, None,
]  # fmt: skip
PROMPTS = [{"prompt_token_ids": [(17 * i + 3 * j) % 250 for j in range(4 + 6 * i)]} for i in range(4)]
PARAMS = [
    SamplingParams(temperature=1.0, seed=i, max_tokens=20, structured_outputs=constraint)
    for i, constraint in enumerate(CONSTRAINTS)
]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))


def tokens(parts: Any) -> list[list[int]]:
    with LLM(parts=parts, **SETTINGS) as llm:
        outputs = [output.outputs[0] for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]
    assert [output.error for output in outputs] == [None] * len(outputs)
    return [list(output.token_ids) for output in outputs]


def with_text(exercise: Exercise, text: str, folder: Path) -> Any:
    return bed.with_text(3, exercise, text, folder)


def an_answer(parts: Any) -> Any:
    with LLM(parts=parts, **SETTINGS) as llm:
        return llm.generate(PROMPTS, PARAMS, use_tqdm=False)[1]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_engine_runs_into_an_empty_blank(exercise: Exercise, tmp_path: Path) -> None:
    bed.meets_the_blank(3, exercise, tmp_path, an_answer)


@pytest.fixture(scope="module")
def reference_tokens() -> list[list[int]]:
    return tokens(None)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_solved_part_gives_the_same_tokens(
    exercise: Exercise, tmp_path: Path, reference_tokens: list[list[int]]
) -> None:
    parts = bed.solved(3, exercise, tmp_path)
    assert tokens(parts) == reference_tokens


@pytest.mark.parametrize(
    "path", [path for exercise in EXERCISES for path in exercise.alternatives], ids=lambda path: path.stem
)
def test_other_right_answers_run_in_the_engine(path: Path, tmp_path: Path, reference_tokens: list[list[int]]) -> None:
    exercise = find(path.parent.name.partition("_")[0])
    assert tokens(with_text(exercise, path.read_text(encoding="utf-8"), tmp_path)) == reference_tokens
