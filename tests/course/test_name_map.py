"""The name map and the modules say the same: every path that a docstring names has a row, every row's name exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from sixfold.builder.name_map import COMMIT, NameRow, read_name_map, vllm_table
from sixfold.exercises.catalog import Exercise, all_exercises

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "name-map.md").read_text(encoding="utf-8")
ROWS = read_name_map(TEXT)
LATER = TEXT.partition("## Where files went later")[2]


def module_paths() -> dict[str, Path]:
    """Every module of every stage by its dotted name; packages by the package's."""
    found = {}
    for package in sorted(ROOT.glob("stages/0?_*/stage?")):
        for path in sorted(package.rglob("*.py")):
            dotted = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
            found[dotted] = path
    return found


def named_paths(docstring: str) -> list[str]:
    """The files and folders of vLLM that a module's docstring names, without a leading ``vllm/``."""
    start = re.search(r"^vLLM\b", docstring, re.MULTILINE)
    quoted = re.findall(r"``([^`]+)``", docstring[start.start() :]) if start else []
    paths = [text.removeprefix("vllm/") for text in quoted if re.fullmatch(r"[\w*/.]+", text)]
    return [path for path in paths if path.endswith((".py", "/"))]


def is_covered(path: str, rows: list[NameRow]) -> bool:
    """Whether a row leads to ``path``; a docstring may shorten it from the left, or write ``*``."""
    pattern = re.compile(r"vllm/(.*/)?" + re.escape(path).replace(r"\*", r"\w*"))
    return any(pattern.match(row.path) for row in rows)


MODULES = module_paths()


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_path_of_a_docstring_is_in_the_map(module: str) -> None:
    docstring = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8"))) or ""
    rows = [row for row in ROWS if row.module == module]
    moved = [path for path in named_paths(docstring) if not is_covered(path, rows)]
    # A docstring may name a file by its later place; then the list of moved files has it.
    missing = [path for path in moved if f"`vllm/{path}`" not in LATER]
    assert not missing, f"docs/name-map.md has no row for {module} → {missing}"
    assert rows or not named_paths(docstring)


@pytest.mark.parametrize("module", sorted({row.module for row in ROWS}))
def test_every_name_of_a_row_exists(module: str) -> None:
    loaded = importlib.import_module(module)
    for row in (row for row in ROWS if row.module == module):
        missing = [symbol for symbol in row.symbols if not hasattr(loaded, symbol)]
        assert not missing, f"{module} has no {missing}: mend docs/name-map.md"


@pytest.mark.parametrize("exercise", all_exercises(), ids=lambda exercise: exercise.id)
def test_every_exercise_names_a_place_of_the_map(exercise: Exercise) -> None:
    path, _, symbol = exercise.vllm.partition(":")
    assert symbol
    assert any(row.module == exercise.module and row.path and path.startswith(row.path) for row in ROWS), exercise.vllm


def test_every_table_row_was_read() -> None:
    written = [line for line in TEXT.partition("## Where files went later")[0].splitlines() if line.startswith("| `")]
    assert len(ROWS) == len(written) > 80
    assert all(row.path.startswith("vllm/") or row.path == "" for row in ROWS)
    assert COMMIT in TEXT


def test_reader_tells_cells_apart() -> None:
    text = "| `stage1.a` | `B`, `C` | `vllm/d.py` | `E` | why |\n| `stage1.f` | | | | |\n| ours | b | c | d | e |\n"
    assert read_name_map(text) == [
        NameRow("stage1.a", ("B", "C"), "vllm/d.py", "`E`", "why"),
        NameRow("stage1.f", (), "", "", ""),
    ]
    assert "| `a.B`, `a.C` | `vllm/d.py`: `E` | why |\n| `stage1.f` | – |  |" in vllm_table(
        read_name_map(text), ["stage1.a", "stage1.f"]
    )


def test_planted_gap_is_found() -> None:
    rows = [NameRow("stage1.a", (), "vllm/v1/engine/core.py", "", "")]
    assert is_covered("v1/engine/core.py", rows)
    assert is_covered("core.py", rows)
    assert not is_covered("v1/engine/llm_engine.py", rows)
    assert not is_covered("re.py", rows)
    assert named_paths("A.\n\nSee ``b.py``.\n\nvLLM: ``vllm/c.py`` (``D``), ``e/`` and ``f.g``.") == ["c.py", "e/"]
