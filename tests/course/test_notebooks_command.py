"""``sixfold notebooks``: what it writes, what it says, and where it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sixfold.builder import places
from sixfold.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose only master is the example."""
    (tmp_path / "course" / "masters").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "tests" / "course" / "example" / "01z_example.md", tmp_path / "course" / "masters")
    shutil.copy(ROOT / "docs" / "name-map.md", tmp_path / "docs")
    monkeypatch.setattr(places, "__file__", str(tmp_path / "course" / "sixfold" / "builder" / "places.py"))
    return tmp_path


def test_build_writes_what_check_then_accepts(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["notebooks", "check"]) == 1
    assert "notebooks/01z_example.ipynb is missing: run `make notebooks`" in capsys.readouterr().out
    assert main(["notebooks", "build"]) == 0
    assert "wrote notebooks/01z_example.ipynb\n" in capsys.readouterr().out
    assert main(["notebooks", "build"]) == 0
    assert capsys.readouterr().out == "notebooks: nothing has changed\n"
    main(["notebooks", "check"])
    assert "ipynb" not in capsys.readouterr().out  # the example is too short, and that is all


def test_unknown_exercise_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    master = checkout / "course" / "masters" / "01z_example.md"
    master.write_text(master.read_text(encoding="utf-8").replace("exercise 1.2", "exercise 1.99"), encoding="utf-8")
    assert main(["notebooks", "build"]) == 2
    assert "there is no exercise '1.99'" in capsys.readouterr().err
    assert not (checkout / "notebooks").exists()


def test_without_a_repository_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(places, "__file__", str(tmp_path / "a" / "sixfold" / "builder" / "places.py"))
    assert main(["notebooks", "build"]) == 2
    assert "run this in a checkout of the repository" in capsys.readouterr().err
