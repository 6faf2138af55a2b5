"""The learner's pool, manager and slots run in stage 2's engine; and a pool that walks its list does not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.exercises import runner
from sixfold.exercises.catalog import Exercise, find
from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage2.llm import LLM

bed = load_file(Path(__file__).with_name("mine_bed.py"))

EXERCISES = [find("2.1"), find("2.2"), find("2.3")]
# Few blocks of an odd size: somebody is preempted.
SETTINGS: dict[str, Any] = {
    "model": "tiny", "load_format": "dummy", "max_model_len": 48, "dtype": "float32", "device": "cpu", "block_size": 5,
    "num_gpu_blocks_override": 10,
}  # fmt: skip
PROMPTS = [{"prompt_token_ids": [(17 * i + 3 * j) % 250 for j in range(4 + 6 * i)]} for i in range(4)]
SAMPLING = SamplingParams(temperature=0.8, top_p=0.9, seed=3, max_tokens=9, ignore_eos=True)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))


def tokens(parts: Any) -> list[list[int]]:
    with LLM(parts=parts, **SETTINGS) as llm:
        outputs = llm.generate(PROMPTS, SAMPLING, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def with_text(exercise: Exercise, text: str, folder: Path) -> Any:
    return bed.with_text(2, exercise, text, folder)


def an_answer(parts: Any) -> Any:
    with LLM(parts=parts, **SETTINGS) as llm:
        return llm.generate(PROMPTS, SAMPLING, use_tqdm=False)[0]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_engine_runs_into_an_empty_blank(exercise: Exercise, tmp_path: Path) -> None:
    bed.meets_the_blank(2, exercise, tmp_path, an_answer)


@pytest.fixture(scope="module")
def reference_tokens() -> list[list[int]]:
    return tokens(None)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_solved_part_gives_the_same_tokens(
    exercise: Exercise, tmp_path: Path, reference_tokens: list[list[int]]
) -> None:
    parts = bed.solved(2, exercise, tmp_path)
    assert tokens(parts) == reference_tokens


@pytest.mark.parametrize(
    "path", [path for exercise in EXERCISES for path in exercise.alternatives], ids=lambda path: path.stem
)
def test_other_right_answers_run_in_the_engine(path: Path, tmp_path: Path, reference_tokens: list[list[int]]) -> None:
    exercise = find(path.parent.name.partition("_")[0])
    assert tokens(with_text(exercise, path.read_text(encoding="utf-8"), tmp_path)) == reference_tokens


LINEAR = '''
from stage2.block_pool import BlockPool as Reference


class BlockPool(Reference):
    """Walks from the head to the block."""

    def share(self, block: int) -> None:
        if self._ref_count[block] == 0 and block in self.free_blocks():
            self._unlink(block)
        self._ref_count[block] += 1
'''


def test_a_pool_that_walks_its_list_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "ex_2_1.py"
    path.write_text(LINEAR, encoding="utf-8")
    outcome = runner.check(find("2.1"), path, time_limit=4.0)  # its 40,000 walks take minutes
    assert outcome.status == "error"
    assert "a large pool" in str(outcome)
    assert "none may walk through the list" in str(outcome)
