"""Loading by path: every edit is seen, and classes find their module."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sixfold.exercises.importer import load_file


def usual_import(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path: Path, text: str, second: int) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, (second, second))


def test_edit_of_the_same_second_and_length_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "edited.py"
    write(path, "def f():\n    return 1\n", 1_700_000_000)
    assert usual_import(path, "edited_usual").f() == 1  # this writes the bytecode cache
    first = load_file(path)
    assert first.f() == 1
    assert inspect.getsource(first.f) == "def f():\n    return 1\n"
    write(path, "def f():\n    return 2\n", 1_700_000_000)
    assert usual_import(path, "edited_usual").f() == 1, "Python's own import is expected to miss this edit"
    module = load_file(path)
    assert module.f() == 2
    assert inspect.getsource(module.f) == "def f():\n    return 2\n"


def test_names_and_dataclasses(tmp_path: Path) -> None:
    path = tmp_path / "ex_9_9.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass, field\nfrom typing import ClassVar\n"
        "@dataclass\nclass A:\n    n: ClassVar[int] = 3\n    x: list[int] = field(default_factory=list)\n",
        encoding="utf-8",
    )
    module = load_file(path, "ex_9_9")
    assert repr(module.A) == "<class 'ex_9_9.A'>"
    assert repr(module.A([1])) == "A(x=[1])"
    assert sys.modules["ex_9_9"] is module
    assert module.__file__ == str(path)


def test_a_file_that_fails_leaves_the_earlier_module(tmp_path: Path) -> None:
    path = tmp_path / "failing.py"
    for text, error in (("1 / 0", ZeroDivisionError), ("def", SyntaxError)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(error):
            load_file(path, "failing_once")
        assert "failing_once" not in sys.modules
    path.write_text("x = 1", encoding="utf-8")
    module = load_file(path, "failing_once")
    path.write_text("1 / 0", encoding="utf-8")
    with pytest.raises(ZeroDivisionError):
        load_file(path, "failing_once")
    assert sys.modules.pop("failing_once") is module


def test_default_name_comes_from_folder_and_file(tmp_path: Path) -> None:
    folder = tmp_path / "1.2_rope"
    folder.mkdir()
    (folder / "spec.py").write_text("", encoding="utf-8")
    assert load_file(folder / "spec.py").__name__ == "1_2_rope_spec"
