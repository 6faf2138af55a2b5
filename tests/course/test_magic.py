"""``%load_ext sixfold.notebook``: the cell magic and the functions, in a real shell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure
from traitlets.config import Config

from sixfold.exercises import predictions, quizzes, store
from sixfold.exercises.catalog import find
from sixfold.exercises.stub import make_solution, make_stub
from sixfold.notebook import load_ipython_extension

ROPE = find("1.2")
Run = Callable[[str], Any]


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return tmp_path / "work"


@pytest.fixture
def run(work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A function that runs a cell and returns its result; an error in it fails the test."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a notebook must not ask"))
    # A shell takes these over for good; other tests need them as they were.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for name in ("excepthook", "displayhook", "path"):
        monkeypatch.setattr(sys, name, list(sys.path) if name == "path" else getattr(sys, name))
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    load_ipython_extension(shell)

    def cell(text: str) -> Any:
        done = shell.run_cell(text)
        assert done.success, done.error_in_exec or done.error_before_exec
        return done.result

    yield cell
    InteractiveShell.clear_instance()


def exercise_cell(text: str, exercise_id: str = "1.2") -> str:
    return f"%%exercise {exercise_id}\n{text}"


def test_stub_then_solution(run: Run, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(exercise_cell(make_stub(ROPE)))
    assert 'saved as work/ex_1_2.py (yours)\nnext: check("1.2")' in capsys.readouterr().out
    assert (work / "ex_1_2.py").read_text(encoding="utf-8") == make_stub(ROPE)
    assert run('check("1.2")').status == "not attempted"

    run(exercise_cell(make_solution(ROPE)))
    assert run("apply_rope").__module__ == "ex_1_2"
    assert run('check("1.2")').status == "pass"
    assert "✓ 1.2 passes all 5 cases" in capsys.readouterr().out

    # A notebook that is opened anew has the stub again, and must not undo the work.
    run(exercise_cell(make_stub(ROPE)))
    assert "keeps your version" in capsys.readouterr().out
    assert (work / "ex_1_2.py").read_text(encoding="utf-8") == make_solution(ROPE)
    assert run("apply_rope").__code__.co_filename == str(work / "ex_1_2.py")

    run(exercise_cell("def apply_rope(x, cos, sin):\n    return x\n"))
    assert "the version that passed is kept in old/ex_1_2." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def apply_rope(x cos", "SyntaxError: invalid syntax\nwork/ex_1_2.py, line 1\n    def apply_rope(x cos\n    "),
        ("import torch\n1 / 0", "ZeroDivisionError: division by zero\nwork/ex_1_2.py, line 2\n    1 / 0"),
        ("from sixfold.exercises.stub import NotAttempted\nraise NotAttempted('1.2')", "still to be written"),
    ],
)
def test_broken_cell_is_saved_and_explained(
    run: Run, work: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    run(exercise_cell(text))
    shown = capsys.readouterr()
    assert message in shown.out
    assert "Traceback" not in shown.out + shown.err
    assert (work / "ex_1_2.py").read_text(encoding="utf-8") == text + "\n"


def test_only_what_the_cell_defines_is_brought_in(run: Run) -> None:
    run(exercise_cell("import math as mathematics\nlimit, other = 3, 4\nclass Thing: ...\nasync def f(): ...\n"))
    assert run("(limit, other, Thing.__name__, f.__name__)") == (3, 4, "Thing", "f")
    assert run("'mathematics' in globals()") is False


@pytest.mark.parametrize(
    "call",
    [
        "%%exercise 7.7\npass",
        "%%exercise\npass",
        'check("7.7")',
        "hint(1.25)",
        'show("x")',
        'solution("")',
        'reset("7")',
        'hint("1.2", 9)',
        'quiz("none")',
        "banner(9)",
    ],
)
def test_wrong_use_gets_help(run: Run, capsys: pytest.CaptureFixture[str], call: str) -> None:
    assert run(call) is None
    shown = capsys.readouterr().out
    assert "there is no" in shown or "has no" in shown
    assert len(shown) < 500


def test_check_before_the_cell_was_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check(1.2)").status == "not attempted"
    assert "there is no work/ex_1_2.py yet; run its %%exercise cell" in capsys.readouterr().out


def test_hint_ladder(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for expected in ("hint 1 of 3", "hint 2 of 3", "hint 3 of 3", "hint 3 of 3"):
        run('hint("1.2")')
        assert capsys.readouterr().out.startswith(expected)
    run('hint("1.2", 1)')
    assert 'hint("1.2", 2)' in capsys.readouterr().out
    assert store.record_of(ROPE).hints == 3


def test_solution_opens_after_a_pass_or_when_sure(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    body = make_solution(ROPE).splitlines()[-1]
    run('solution("1.2")')
    shown = capsys.readouterr().out
    assert 'solution("1.2", sure=True)' in shown
    assert len(shown.splitlines()) == 1
    run('solution("1.2", sure=True)')
    assert body in capsys.readouterr().out
    run('solution("1.2")')  # it has been seen
    assert body in capsys.readouterr().out
    path, _ = store.write_file(find("1.4"), "x = 1\n")
    store.remember_check(find("1.4"), "pass", store.digest(find("1.4"), path))
    run('solution("1.4")')
    assert "class OneBlockKVManager" in capsys.readouterr().out
    assert path.read_text() == "x = 1\n"


def test_reset_keeps_a_copy_and_touches_one_exercise(run: Run, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store.write_file(ROPE, "mine = 1\n")
    store.write_file(find("1.4"), "mine = 4\n")
    run('reset("1.2")')
    assert "work/ex_1_2.py is the stub again; what was there is kept in old/ex_1_2." in capsys.readouterr().out
    assert (work / "ex_1_2.py").read_text(encoding="utf-8") == make_stub(ROPE)
    assert (work / "ex_1_4.py").read_text() == "mine = 4\n"
    (copy,) = (work / "old").iterdir()
    assert copy.read_text() == "mine = 1\n"
    run('reset("1.2")')
    assert len(list((work / "old").iterdir())) == 1
    assert run("get_ipython().rl_next_input") == exercise_cell(make_stub(ROPE))


def test_show_draws_the_learners_own_result(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(run('show("1.2")'), Figure)
    assert "drawn with the reference: 1.2 is not attempted yet" in capsys.readouterr().out
    assert "image/png" in run('get_ipython().display_formatter.format(show("1.2"))')[0]
    store.write_file(ROPE, (ROPE.folder / "wrong_direction.py").read_text(encoding="utf-8"))
    own, y = run('show("1.2")'), 1
    assert "drawn with your version, work/ex_1_2.py" in capsys.readouterr().out
    offsets = own.axes[0].collections[0].get_offsets()
    assert offsets[1][y] < 0  # clockwise, as the mistake has it
    store.write_file(ROPE, "def apply_rope(x, cos, sin):\n    return x[99]\n")
    assert isinstance(run('show("1.2")'), Figure)
    shown = capsys.readouterr().out
    assert "drawn with the reference: yours stops with IndexError" in shown
    assert "line 2, in apply_rope" in shown


def test_llm_runs_what_passed_and_says_so(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = store.write_file(ROPE, make_solution(ROPE))
    store.remember_check(ROPE, "pass", store.digest(ROPE, path))
    tiny = 'model="tiny", load_format="dummy", max_model_len=32, dtype="float32"'
    run(f"with llm(stage=1, {tiny}) as engine: ids = engine.generate([[3, 1]], use_tqdm=False)[0].outputs[0].token_ids")
    assert "● rotate      yours      work/ex_1_2.py" in capsys.readouterr().out
    assert len(run("ids")) > 0


# --- predictions, quizzes, progress -----------------------------------------------------------------------


def test_prediction_is_kept_until_it_is_revealed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for cell, shown in (
        ('predict("1.a", ...)', "no prediction for 1.a yet: write what you expect, a number, (low, high) or a word"),
        ('reveal("1.a", 3)', "measured for 1.a: 3 (you had predicted nothing)"),
        ('predict("1.a", 10)', "predicted for 1.a: 10"),
        ('predict("1.a", 20)', "predicted for 1.a: 20"),
        ('reveal("1.a", 30.0, "ms")', "1.a: predicted 20 ms, measured 30 ms: 1.5 times your number"),
        ('predict("1.a", 30)', "your prediction for 1.a stays 20: you have seen the measurement"),
        ('reveal("1.a", 5)', "1.a: predicted 20, measured 5: your number was 4 times too large"),
        ('predict("1.b", (1, 2.5))', "predicted for 1.b: 1 to 2.5"),
        ('reveal("1.b", 2)', "1.b: predicted 1 to 2.5, measured 2: inside your range"),
        ('predict("1.c", "yes", "no")', "predicted for 1.c: yes\n1.c: predicted yes, measured no: not what you"),
        ('import torch; predict("1.d", torch.tensor(4))', "predicted for 1.d: 4"),
        ('reveal("1.d", torch.tensor(4))', "1.d: predicted 4, measured 4: exactly right"),
    ):  # fmt: skip
        run(cell)
        assert capsys.readouterr().out.startswith(shown)
    assert predictions.summary().splitlines() == [
        "predictions: 4 measured",
        "  1 of 2 numbers within a factor of 1.5; you tend to guess too high",
        "  1 of 1 ranges held the measurement",
        "  0 of 1 choices right",
    ]


QUIZ = """
[[item]]
question = "Which?"
answer = "b"
options = {a = "This", b = "That"}
explains = {a = "No, because.", b = "Yes, since."}
misconceptions = {a = "this"}
"""


def test_quiz_explains_every_option(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "01z.toml").write_text(QUIZ, encoding="utf-8")
    monkeypatch.setattr(quizzes, "folder", lambda: tmp_path)
    for cell, shown in (
        ('quiz("01z")', '1. Which?\n   a) This\n   b) That\n\nanswer with: answer("01z", 1, "a")'),
        ('answer("01z", 1, "a")', "✗ not so: This\n  No, because."),
        ('answer("01z", 1, "B ")', "✓ right: That\n  Yes, since."),
        ('answer("01z", 2, "a")', "quiz 01z has the questions 1 to 1, not 2"),
        ('answer("01z", 1, "c")', "question 1 has the options a, b, not 'c'"),
    ):
        run(cell)
        assert capsys.readouterr().out.strip() == shown
    assert quizzes.summary() == "quiz 01z: 0 of 1 right at the first try"
    (tmp_path / "01z.toml").write_text(QUIZ.replace(', b = "Yes, since."', ""), encoding="utf-8")
    with pytest.raises(ValueError, match="every option needs an explanation"):
        quizzes.load_quiz("01z", tmp_path)


def test_progress_lists_states(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = store.write_file(ROPE, make_solution(ROPE))
    store.remember_check(ROPE, "pass", store.digest(ROPE, path))
    store.write_file(find("1.4"), "x = 1\n")
    store.remember_check(find("1.4"), "fail", "of an older version")
    run("progress()")
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert rows["1.2"].startswith("✓ 1.2 ")
    assert rows["1.2"].endswith("pass · 1 checked")
    assert "edited since its check" in rows["1.4"]
    assert rows["1.1"].endswith("not attempted")
    assert rows["of"].startswith("1 of ")


@pytest.mark.parametrize("path", sorted(quizzes.folder().glob("*.toml")), ids=lambda path: path.stem)
def test_quizzes_of_the_course(path: Path) -> None:
    items = quizzes.load_quiz(path.stem)
    assert 4 <= len(items) <= 6
    for item in items:
        assert 2 <= len(item.options) <= 5
        assert item.misconceptions.keys() == item.options.keys() - {item.answer}
