"""The learner's names, search and pool run in stage 3's engine; and a pool that searches for a name does not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.exercises import runner
from sixfold.exercises.catalog import Exercise, find
from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage3.llm import LLM

bed = load_file(Path(__file__).with_name("mine_bed.py"))

EXERCISES = [find("3.1"), find("3.2"), find("3.3")]
# Few blocks of an odd size, and a second round: something is found, something is forgotten.
SETTINGS: dict[str, Any] = {
    "model": "tiny", "load_format": "dummy", "max_model_len": 48, "dtype": "float32", "device": "cpu", "block_size": 5,
    "num_gpu_blocks_override": 11, "max_num_seqs": 3,
}  # fmt: skip
SHARED = [(7 * j + 1) % 250 for j in range(11)]
PROMPTS = [{"prompt_token_ids": [*SHARED, *((17 * i + 3 * j) % 250 for j in range(2 + 4 * i))]} for i in range(4)]
SAMPLING = SamplingParams(temperature=0.8, top_p=0.9, seed=3, max_tokens=7, ignore_eos=True)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))


def served(parts: Any) -> tuple[list[list[int]], list[int]]:
    """Tokens of two rounds, and how many tokens each step computed."""
    sink = MemorySink()
    with LLM(parts=parts, sinks=[sink], **SETTINGS) as llm:
        outputs = [output for _ in range(2) for output in llm.generate(PROMPTS, SAMPLING, use_tqdm=False)]
    trace = Trace(sink.events)
    assert check_trace(trace) == []
    return [list(output.outputs[0].token_ids) for output in outputs], [s.num_tokens for s in trace.steps.values()]


def with_text(exercise: Exercise, text: str, folder: Path) -> Any:
    return bed.with_text(3, exercise, text, folder)


def an_answer(parts: Any) -> Any:
    with LLM(parts=parts, **SETTINGS) as llm:
        return llm.generate(PROMPTS, SAMPLING, use_tqdm=False)[0]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_engine_runs_into_an_empty_blank(exercise: Exercise, tmp_path: Path) -> None:
    bed.meets_the_blank(3, exercise, tmp_path, an_answer)


@pytest.fixture(scope="module")
def reference() -> tuple[list[list[int]], list[int]]:
    return served(None)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_solved_part_serves_alike(exercise: Exercise, tmp_path: Path, reference: tuple[Any, Any]) -> None:
    parts = bed.solved(3, exercise, tmp_path)
    assert served(parts) == reference


@pytest.mark.parametrize(
    "path", [path for exercise in EXERCISES for path in exercise.alternatives], ids=lambda path: path.stem
)
def test_other_right_answers_serve_alike(path: Path, tmp_path: Path, reference: tuple[Any, Any]) -> None:
    exercise = find(path.parent.name.partition("_")[0])
    assert served(with_text(exercise, path.read_text(encoding="utf-8"), tmp_path)) == reference


SEARCHING = '''
from stage3.prefix.cached_pool import CachedBlockPool as Reference


class CachedBlockPool(Reference):
    """Looks for the name among all names."""

    def forget(self, block: int) -> None:
        if self._key_of[block] is not None and block in self._block_of.values():
            super().forget(block)
        elif any(block in twins for twins in self._twins.values()):
            super().forget(block)
'''


def test_a_pool_that_searches_through_all_names_does_not_pass(tmp_path: Path) -> None:
    path = tmp_path / "ex_3_3.py"
    path.write_text(SEARCHING, encoding="utf-8")
    outcome = runner.check(find("3.3"), path, time_limit=4.0)  # its 100,000 searches take much longer
    assert outcome.status == "error"
    assert "a large pool" in str(outcome)
    assert "none may search through all" in str(outcome)
