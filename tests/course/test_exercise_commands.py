"""``sixfold check``, ``hint``, ``show``, ``solution``, ``reset``, ``progress``, and ``--mine``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.cli import main
from sixfold.exercises import store
from sixfold.exercises.catalog import find
from sixfold.exercises.stub import make_solution, make_stub

ROPE = find("1.2")


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path / "work"))
    return tmp_path / "work"


def solved() -> None:
    path, _ = store.write_file(ROPE, make_solution(ROPE))
    store.remember_check(ROPE, "pass", store.digest(ROPE, path))


def test_check_says_what_it_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store.write_file(ROPE, make_solution(ROPE))
    assert main(["check"]) == 0  # all that was begun
    assert capsys.readouterr().out.startswith("✓ 1.2 passes all 5 cases (yours, work/ex_1_2.py)\n")
    assert main(["check", "1.1"]) == 1
    assert "○ 1.1 is not attempted yet" in capsys.readouterr().out
    wrong = tmp_path / "other.py"
    wrong.write_text("def apply_rope(x, cos, sin):\n    return x\n", encoding="utf-8")
    assert main(["check", "1.2", "--file", str(wrong)]) == 1
    assert "✗ 1.2 fails in case 1 of 5" in capsys.readouterr().out
    assert store.record_of(ROPE).status == "pass"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["check"], "nothing is begun in"),
        (["check", "7.7"], "there is no exercise '7.7'; did you mean"),
        (["check", "1.2", "--file", "missing.py"], "a file that exists"),
        (["check", "1.2", "1.1", "--file", __file__], "--file needs one exercise"),
        (["check", "1.2", "--time-limit", "0"], "--time-limit is 0"),
        (["hint", "1.2", "4"], "no hint 4; there are 1 to 3"),
        (["solution", "1.2"], "add --yes"),
        (["show", "1.2", "--out", "a.txt"], "does not end with .png"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_hints_and_solution(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["hint", "1.2"]) == 0
    assert main(["hint", "1.2"]) == 0
    shown = capsys.readouterr().out
    assert "hint 1 of 3" in shown
    assert "hint 2 of 3" in shown
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert main(["solution", "1.2"]) == 1
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("builtins.input", lambda question: "Y")
    assert main(["solution", "1.2"]) == 0
    assert capsys.readouterr().out.strip() == make_solution(ROPE).strip()
    assert main(["solution", "1.4", "--yes"]) == 0


def test_reset_show_and_progress(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reset", "1.2"]) == 0
    assert (work / "ex_1_2.py").read_text(encoding="utf-8") == make_stub(ROPE)
    assert main(["show", "1.2"]) == 0
    assert "drawn with the reference: 1.2 is not attempted yet" in capsys.readouterr().out
    assert (work / "ex_1_2.png").stat().st_size > 1_000
    solved()
    assert main(["show", "1.2", "--out", str(work / "new" / "own.svg")]) == 0
    assert "drawn with your version" in capsys.readouterr().out
    assert (work / "new" / "own.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert main(["progress"]) == 0
    assert "✓ 1.2 " in capsys.readouterr().out


def test_generate_with_the_learners_parts(capsys: pytest.CaptureFixture[str]) -> None:
    solved()
    tiny = ["--model", "tiny", "--load-format", "dummy", "--max-model-len", "32", "--dtype", "float32"]
    argv = ["generate", "ab", "--max-tokens", "3", "--ignore-eos", "--stage", "1", *tiny]
    assert main(argv) == 0
    plain = capsys.readouterr()
    assert "yours" not in plain.err
    assert main([*argv, "--mine"]) == 0
    own = capsys.readouterr()
    assert own.out == plain.out
    assert "1 of 6 parts are yours:" in own.err
    assert "● rotate      yours      work/ex_1_2.py" in own.err


def test_serve_with_the_learners_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    import stage1

    served: list[dict[str, Any]] = []
    monkeypatch.setattr(stage1, "serve", lambda settings, **given: served.append(given), raising=False)
    solved()
    assert main(["serve", "--stage", "1"]) == 0
    assert main(["serve", "--stage", "1", "--mine"]) == 0
    plain, own = served
    assert plain == {}
    assert own["owners"]["rotate"] == "yours"
    assert own["owners"]["ops"] == "reference"
    assert own["parts"].rotate.__module__ == "ex_1_2"
