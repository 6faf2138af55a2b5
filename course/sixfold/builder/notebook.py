"""One notebook from one master, as the JSON that Jupyter reads.

Owns which cells there are in which build, their ids and their metadata. The same master gives the same bytes: ids come
from a cell's role or its content, and nothing that a kernel would write is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sixfold.builder import texts
from sixfold.builder.master import INSTRUCTOR, Block, Master
from sixfold.builder.name_map import NameRow, vllm_table

Kind = Literal["learner", "instructor", "solved"]
KINDS: tuple[Kind, ...] = ("learner", "instructor", "solved")
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass(frozen=True)
class Cell:
    """A cell before it is JSON. ``role`` names a generated cell and becomes its id."""

    kind: Literal["markdown", "code"]
    source: str
    role: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sources:
    """What notebooks take from elsewhere, so that a test can give its own."""

    exercise: Callable[[str], Any]  # id → Exercise
    stub: Callable[[Any], str]
    solution: Callable[[Any], str]
    hints: Callable[[Any], Sequence[str]]
    name_rows: Sequence[NameRow]


def build_notebook(
    master: Master, kind: Kind, sources: Sources, before: Master | None = None, after: Master | None = None
) -> str:
    """The notebook's file: ``kind`` of ``master``, with links to its neighbours.

    Raises:
        ValueError: an exercise or a row of the name map that it names does not exist.
    """
    return as_json(cells_of(master, kind, sources, before, after), up="../" if kind == "learner" else "../../../")


def cells_of(
    master: Master, kind: Kind, sources: Sources, before: Master | None = None, after: Master | None = None
) -> list[Cell]:
    """The cells of one build, in order."""
    exercises = [sources.exercise(id_) for id_ in master.exercises]
    cells = [
        Cell("markdown", texts.title(master, before, after), "title"),
        Cell("code", texts.setup(master), "setup"),
        Cell("markdown", texts.goals(master.front, exercises), "goals"),
    ]
    body = list(master.blocks)
    tail: list[Block] = []  # an instructor's closing remarks stand below the last cell
    while body and body[-1].name == INSTRUCTOR:
        tail.insert(0, body.pop())
    for block in body:
        cells += _expand(block, master, kind, sources)
    cells.append(Cell("code", "finish()", "finish"))
    for block in tail:
        cells += _expand(block, master, kind, sources)
    return cells


def as_json(cells: Sequence[Cell], up: str = "../") -> str:
    """The cells as a notebook of format 4.5, as ``nbformat`` would write it.

    Links are written as seen from ``notebooks/``; ``up`` leads to the repository from where this notebook lies.
    """
    taken: set[str] = set()
    notebook = {"cells": [_cell(cell, taken, up) for cell in cells], "metadata": _METADATA, "nbformat": 4,
                "nbformat_minor": 5}  # fmt: skip
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _expand(block: Block, master: Master, kind: Kind, sources: Sources) -> list[Cell]:
    if block.name == INSTRUCTOR and kind != "instructor":
        return []
    tags = (block.name,) if block.name else ()
    if block.kind == "exercise":
        return _exercise(sources.exercise(block.exercise), block.source, kind, sources)
    if block.kind == "vllm":
        table = vllm_table(sources.name_rows, master.front.vllm)
        text = "\n\n".join(part for part in ("## How real vLLM does it", table, block.source) if part)
        return [Cell("markdown", text, "vllm", ("vllm",))]
    return [Cell("markdown" if block.kind == "text" else "code", block.source, tags=tags)]


def _exercise(exercise: Any, seen: str, kind: Kind, sources: Sources) -> list[Cell]:
    code = (sources.solution if kind == "solved" else sources.stub)(exercise)
    role = f"exercise-{exercise.id.replace('.', '-')}"
    call = f'("{exercise.id}")'
    return [
        Cell("markdown", texts.card(exercise), f"{role}-card", ("exercise",)),
        Cell("code", f"%%exercise {exercise.id}\n{code.strip()}", f"{role}-stub", ("exercise",)),
        Cell("code", f"check{call}", f"{role}-check", ("exercise", "check")),
        Cell("code", f"show{call}", f"{role}-show", ("exercise",)),
        Cell("markdown", texts.after_exercise(seen, sources.hints(exercise)), f"{role}-seen", ("exercise",)),
        Cell("code", f"# solution{call}    # shows the reference; yours stays as it is", f"{role}-solution",
             ("exercise",)),
    ]  # fmt: skip


def _cell(cell: Cell, taken: set[str], up: str) -> dict[str, Any]:
    wanted = cell.role or hashlib.sha256(f"{cell.kind}\n{cell.source}".encode()).hexdigest()[:12]
    unique, copies = wanted, 1
    while unique in taken:
        copies += 1
        unique = f"{wanted}-{copies}"
    taken.add(unique)
    source = cell.source.replace("](../", f"]({up}") if cell.kind == "markdown" else cell.source
    result: dict[str, Any] = {
        "cell_type": cell.kind,
        "id": unique,
        "metadata": {"tags": list(cell.tags)} if cell.tags else {},
        "source": source.splitlines(keepends=True),
    }
    return result | ({"execution_count": None, "outputs": []} if cell.kind == "code" else {})
