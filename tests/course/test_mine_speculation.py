"""The learner's drafts and verdicts run in stage 3's engine, and change no token of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from sixfold.exercises.catalog import Exercise, find
from sixfold.exercises.importer import load_file
from sixfold.exercises.stub import make_solution, make_stub
from stage1.params import SamplingParams
from stage3.llm import LLM
from stage3.spec.ngram import NgramRules, propose, propose_rows
from stage3.spec.ngram_drafter import propose_on_host
from stage3.spec.rejection import draw_residual

heads = load_file(Path(__file__).parents[1] / "stage3" / "heads_bed.py")

bed = load_file(Path(__file__).with_name("mine_bed.py"))

EXERCISES = [find("3.7"), find("3.8")]
RESIDUAL = find("3.9")
SETTINGS: dict[str, Any] = {
    "model": "tiny", "load_format": "dummy", "max_model_len": 96, "dtype": "float32", "device": "cpu", "block_size": 5,
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1},
}  # fmt: skip
# With its random weights the model goes on and on with one token behind the first two, and behind the last with many.
PROMPTS = [{"prompt_token_ids": tokens} for tokens in ([255] * 20, [254] * 15, [*range(5, 12)] * 4)]
SAMPLING = [
    SamplingParams(temperature=0, max_tokens=30, ignore_eos=True),
    SamplingParams(temperature=0.5, seed=3, max_tokens=20, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=9, ignore_eos=True),
]


def serve(parts: Any, config: dict[str, Any] | None = None) -> tuple[list[list[int]], int, list[int]]:
    """Each request's tokens, the steps, and the drafts accepted at each position."""
    settings = SETTINGS if config is None else {**SETTINGS, "speculative_config": config}
    with LLM(parts=parts, **settings) as llm:
        outputs = llm.generate(PROMPTS, SAMPLING, use_tqdm=False)
        stats = llm.core.stats()
    return [list(output.outputs[0].token_ids) for output in outputs], stats.step, stats.accepted_per_position


def with_text(exercise: Exercise, text: str, folder: Path) -> Any:
    return bed.with_text(3, exercise, text, folder)


def an_answer(parts: Any) -> Any:
    with LLM(parts=parts, **SETTINGS) as llm:
        return llm.generate(PROMPTS, SAMPLING, use_tqdm=False)[0]


@pytest.fixture(scope="module")
def reference() -> tuple[list[list[int]], int, list[int]]:
    found = serve(None)
    assert sum(found[2]) > 0
    return found


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_engine_runs_into_an_empty_blank(exercise: Exercise, tmp_path: Path) -> None:
    bed.meets_the_blank(3, exercise, tmp_path, an_answer)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_solved_part_drafts_and_accepts_the_same(exercise: Exercise, tmp_path: Path, reference: Any) -> None:
    parts = bed.solved(3, exercise, tmp_path)
    assert serve(parts) == reference


@pytest.mark.parametrize(
    "path", [path for exercise in EXERCISES for path in exercise.alternatives], ids=lambda path: path.stem
)
def test_other_right_answers_run_in_the_engine(path: Path, tmp_path: Path, reference: Any) -> None:
    exercise = find(path.parent.name.partition("_")[0])
    assert serve(with_text(exercise, path.read_text(encoding="utf-8"), tmp_path)) == reference


def test_bad_drafts_cost_steps_and_change_no_token(tmp_path: Path, reference: Any) -> None:
    text = "def propose(tokens, rules, room):\n    return [1, 2, 3, 4, 5][: max(room, 0)]\n"
    tokens, steps, _ = serve(with_text(EXERCISES[0], text, tmp_path))
    assert tokens == reference[0]
    assert steps > reference[1]


def test_a_wrong_verdict_changes_tokens(tmp_path: Path, reference: Any) -> None:
    wrong = EXERCISES[1].folder / "wrong_keeps_the_draft.py"
    assert serve(with_text(EXERCISES[1], wrong.read_text(encoding="utf-8"), tmp_path))[0] != reference[0]


def test_a_search_on_the_host_serves_rows_as_the_device_does() -> None:
    made = torch.Generator().manual_seed(4)
    token_ids = torch.randint(4, (9, 40), generator=made, dtype=torch.int32)
    rows = torch.tensor([3, 0, 8, 5, 1, 7])
    lengths = torch.tensor([31, 0, 1, 38, 39, 12])
    rules = NgramRules(4, prompt_lookup_max=3, prompt_lookup_min=2)
    ours = propose_on_host(propose, token_ids, rows, lengths, rules, 40)
    theirs = propose_rows(token_ids, rows, lengths, rules, 40)
    assert ours.counts.tolist() == theirs.counts.tolist()
    assert ours.ids.tolist() == theirs.ids.tolist()
    assert ours.counts.tolist()[1:3] == [0, 0]
    assert ours.counts[3] == 1  # of 38 tokens: one draft, and the token that follows it


# --- drafts that are drawn: 3.9 draws what takes a rejected one's place ---------------------------------


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = heads.write_heads(tmp_path_factory.mktemp("heads"), "medusa")
    return {
        "method": "medusa", "model": str(path), "num_speculative_tokens": 2,
        "rejection_sample_method": "probabilistic",
    }  # fmt: skip


@pytest.fixture(scope="module")
def by_rejection(drawn: dict[str, Any]) -> tuple[list[list[int]], int, list[int]]:
    return serve(None, drawn)


def test_engine_runs_into_the_empty_residual(tmp_path: Path, drawn: dict[str, Any]) -> None:
    parts = with_text(RESIDUAL, make_stub(RESIDUAL), tmp_path)
    with LLM(parts=parts, **{**SETTINGS, "speculative_config": drawn}) as llm:
        message = str(llm.generate(PROMPTS, SAMPLING, use_tqdm=False)[1].outputs[0].error)
    assert "exercise 3.9: this body is still to be written" in message


def test_solved_residual_draws_the_same(tmp_path: Path, drawn: dict[str, Any], by_rejection: Any) -> None:
    parts = with_text(RESIDUAL, make_solution(RESIDUAL), tmp_path)
    assert parts.draw_residual is not draw_residual
    assert serve(parts, drawn) == by_rejection


@pytest.mark.parametrize("path", RESIDUAL.alternatives, ids=lambda path: path.stem)
def test_other_right_residuals_run_in_the_engine(
    path: Path, tmp_path: Path, drawn: dict[str, Any], by_rejection: Any
) -> None:
    assert serve(with_text(RESIDUAL, path.read_text(encoding="utf-8"), tmp_path), drawn) == by_rejection


def test_a_wrong_residual_changes_tokens(tmp_path: Path, drawn: dict[str, Any], by_rejection: Any) -> None:
    wrong = RESIDUAL.folder / "wrong_draws_from_the_target.py"
    found = serve(with_text(RESIDUAL, wrong.read_text(encoding="utf-8"), tmp_path), drawn)
    assert found[0][1] != by_rejection[0][1]  # the one with a temperature
    # Of greedy requests p is one token, whatever is taken from it.
    assert [found[0][0], found[0][2]] == [by_rejection[0][0], by_rejection[0][2]]
