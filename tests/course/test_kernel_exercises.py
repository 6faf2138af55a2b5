"""Exercises whose part is a Triton kernel: blanks show through the interpreter, and the engine runs what is written."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from sixfold import interpreter
from sixfold.exercises import faults, lesson, mine, runner, store
from sixfold.exercises.catalog import all_exercises, find
from sixfold.exercises.importer import load_file
from sixfold.exercises.kernel_variants import kernel_with
from sixfold.exercises.stub import make_solution, make_stub
from stage1.params import SamplingParams
from stage2.build import Parts
from stage2.kernels.decode_attention import DecodeKernels, paged_decode, paged_verify
from stage2.llm import LLM
from stage2.parts import with_kernels

ROOT = Path(__file__).parents[2]
KERNELS = [exercise for exercise in all_exercises() if exercise.kernel]
each = pytest.mark.parametrize("exercise", KERNELS, ids=lambda exercise: exercise.id)
interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")
TINY: dict[str, Any] = {"model": "tiny", "load_format": "dummy", "max_model_len": 64, "dtype": "float32"}
LONG = 150  # keys, enough for two splits, which the merge kernel joins


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))
    return tmp_path / "work"


def generate(parts: Any, backend: str = "triton") -> Any:
    with LLM(parts=parts, **TINY, device="cpu", attention_backend=backend) as llm:
        params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
        return llm.generate([[5, 9, 3]], params, use_tqdm=False)[0].outputs[0]


def decode(parts: Any) -> torch.Tensor:
    """One long request with the kernels that an engine with ``parts`` would launch; a long prompt would take longer."""
    kernels = with_kernels(parts, "triton", torch.device("cpu")).attention.keywords["kernels"]
    torch.manual_seed(1)
    cache, q = torch.randn(2, 10, 16, 1, 64), torch.randn(1, 2, 64)
    table, lens = torch.randperm(10)[None], torch.tensor([LONG])
    return paged_decode(q, *cache, table, lens, num_splits=2, scale=0.1, kernels=kernels)


def failure(parts: Any) -> str:
    """The error with which the engine ends the request, or that it or a launch raises."""
    try:
        error = generate(parts).error
        decode(parts)
        return str(error)
    except Exception as error:
        return str(faults.root(error))


def passed(exercise_id: str) -> None:
    """Write the solution of an exercise, and remember that it passed."""
    exercise = find(exercise_id)
    path, _ = store.write_file(exercise, make_solution(exercise))
    store.remember_check(exercise, "pass", store.digest(exercise, path))


@interpreted
@each
def test_engine_runs_into_an_empty_blank(exercise: Any, tmp_path: Path) -> None:
    path = tmp_path / f"{exercise.module_name}.py"
    path.write_text(make_stub(exercise), encoding="utf-8")
    parts = mine.parts_from(exercise.stage, {exercise.part: str(path)})
    assert f"exercise {exercise.id}: this body is still to be written" in failure(parts)


@interpreted
def test_solved_kernels_give_the_same_tokens() -> None:
    for exercise in KERNELS:
        passed(exercise.id)
    parts, owners = mine.my_parts(2)
    assert {owners[exercise.part] for exercise in KERNELS} == {"yours"}
    for exercise in KERNELS:
        assert getattr(parts, exercise.part) is not getattr(importlib.import_module(exercise.module), exercise.name)
    assert generate(parts).token_ids == generate(None, "torch").token_ids
    assert torch.equal(decode(parts), decode(Parts()))


@pytest.mark.gpu
@each
def test_solved_kernel_compiles_and_gives_the_same_tokens(exercise: Any, tmp_path: Path) -> None:
    path = tmp_path / f"{exercise.module_name}.py"
    path.write_text(make_solution(exercise), encoding="utf-8")
    prompts = [[(7 * i) % 250 for i in range(length)] for length in (3, LONG)]
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    found = []
    for parts in (Parts(), mine.parts_from(exercise.stage, {exercise.part: str(path)})):
        with LLM(parts=parts, **{**TINY, "max_model_len": 256}, attention_backend="triton") as llm:
            found.append([output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)])
    assert found[0] == found[1]


@pytest.mark.gpu
def test_suspect_kernel_compiles_and_fails_where_the_notebook_says() -> None:
    from sixfold.museum_kernels import suspect_attend_kernel

    lengths = [128, 129, 130, 131]
    torch.manual_seed(2)
    cache, q = torch.randn(2, 32, 16, 1, 16, device="cuda"), torch.randn(12, 1, 16, device="cuda")
    table = torch.randperm(32, device="cuda").int().repeat(4, 1)
    lens = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    starts = torch.arange(0, 13, 3, device="cuda", dtype=torch.int32)
    for kernel, bad in ((suspect_attend_kernel, [0, 2, 1, 0]), (DecodeKernels().attend, [0, 0, 0, 0])):
        out = paged_verify(q, *cache, table, lens, starts, max_query_len=3, num_splits=4, scale=0.25,
                           kernels=DecodeKernels(attend=kernel))  # fmt: skip
        assert out.isnan().any(-1).view(4, 3).sum(1).tolist() == bad


def test_kernels_and_the_plain_parts_that_they_replace_do_not_run_together() -> None:
    for exercise_id in ("1.2", "1.3", "2.7"):
        passed(exercise_id)
    owners = {backend: mine.owners_of(mine.survey(2, backend=backend)) for backend in ("auto", "triton", "torch")}
    assert owners["auto"] == owners["triton"]
    of = lambda backend: [owners[backend][part] for part in ("rotate", "attention", "merge_kernel")]  # noqa: E731
    assert of("auto") == ["reference", "reference", "yours"]
    assert of("torch") == ["yours", "yours", "reference"]
    assert "your kernels run in its place" in mine.banner(mine.survey(2))
    assert "--attention-backend triton" in mine.banner(mine.survey(2, backend="torch"))
    assert mine.owners_of(mine.survey(1))["rotate"] == "yours"


def test_without_kernels_the_plain_parts_stay() -> None:
    passed("1.2")
    for backend in ("auto", "triton"):
        assert mine.owners_of(mine.survey(2, backend=backend))["rotate"] == "yours"


@each
def test_picture_of_a_stub_is_the_references(exercise: Any) -> None:
    store.write_file(exercise, make_stub(exercise))
    drawing = lesson.draw(exercise)
    assert (drawing.owner, drawing.note) == (
        "reference",
        f"drawn with the reference: {exercise.id} is not attempted yet",
    )
    store.write_file(exercise, make_stub(exercise) + "\n# a note\n")
    assert "not attempted" in lesson.draw(exercise).note or torch.cuda.is_available()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("@triton.jit(do_not", "@no_jit(do_not"),
            "`merge_kernel` is of type function, where the engine needs a kernel",
        ),
        (("    tile: tl.constexpr,\n", ""), "the engine calls `merge_kernel("),
        (('raise NotAttempted("2.7")', "return lse[0]"), "in _join"),
        (('raise NotAttempted("2.7")', "return tl.load(partial + column.to(tl.int64) * 2**40)"), "without a mask"),
    ],
)
def test_what_is_wrong_with_a_kernel_is_said(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = make_stub(find("2.7"))
    assert change[0] in text
    text = text.replace(*change, 1).replace("@no_jit", "no_jit = lambda **_: lambda f: f\n\n\n@no_jit")
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    outcome = runner.check("2.7", tmp_path / "mine.py")
    assert outcome.status == "error"
    assert message in str(outcome)


def test_kernel_variant_leaves_the_kernel_alone() -> None:
    own = load_file(find("2.7").folder / "solution.py").merge_kernel
    changed = kernel_with(own, _join=None)
    assert changed.fn.__globals__["_join"] is None
    assert own.fn.__globals__["_join"] is not None


def test_root_of_an_error_looks_through_tritons_own() -> None:
    inner = ValueError("inner")
    wrapper = type("InterpreterError", (Exception,), {"__module__": "triton.runtime.errors"})
    outer = wrapper("outer")
    outer.__cause__ = wrapper("middle")
    assert faults.root(outer) is outer.__cause__
    outer.__cause__.__cause__ = inner
    assert faults.root(outer) is inner
    inner.__cause__ = KeyError("deeper")
    assert faults.root(inner) is inner


def test_switch_is_set_only_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    interpreter.interpret_without_gpu()
    assert "TRITON_INTERPRET" not in os.environ
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    interpreter.interpret_without_gpu()
    assert os.environ["TRITON_INTERPRET"] == "1"
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    interpreter.interpret_without_gpu()
    assert os.environ["TRITON_INTERPRET"] == "0"


@interpreted
def test_command_runs_the_learners_kernel(work: Path) -> None:
    exercise = find("2.8")
    loud = make_solution(exercise).replace("    best = tl.full(", '    print("mine")\n    best = tl.full(')
    path, _ = store.write_file(exercise, loud)
    store.remember_check(exercise, "pass", store.digest(exercise, path))
    folders = os.pathsep.join(str(ROOT / name) for name in ("stages/01_single_gpu", "stages/02_paged_kv", "course"))
    environment = {**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, "-m", "sixfold", "generate", "ab", "--stage", "2", "--mine", "--max-tokens", "2",
         "--model", "tiny", "--load-format", "dummy", "--dtype", "float32"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "● attend_kernel" in done.stderr
    assert "mine" in done.stdout
