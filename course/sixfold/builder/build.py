"""All notebooks of the course: written, or compared with what is there.

Owns the list of files that masters become, and what is wrong with a master. Does not know what a cell says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from sixfold.builder.master import Master, read_master, template_faults
from sixfold.builder.name_map import read_name_map
from sixfold.builder.notebook import KINDS, Cell, Kind, Sources, build_notebook, cells_of
from sixfold.builder.places import masters
from sixfold.builder.texts import split_hints

MIN_CELLS, MAX_CELLS = 25, 45
_ONE_LINERS = ("-check", "-show", "-solution")  # an exercise's cells that are run, not read: they do not count
_OWN_NAME = re.compile(r"\d\d[a-z]?_\w+\.ipynb")


def folder_of(root: Path, kind: Kind) -> Path:
    """Where a build goes: the learner's is part of the repository, the others are not."""
    return root / "notebooks" if kind == "learner" else root / "build" / "notebooks" / kind


def course_sources(root: Path) -> Sources:
    """The exercises of the stages that are here, and the name map of the repository."""
    from sixfold.exercises import catalog, stub

    return Sources(
        exercise=catalog.find,
        stub=stub.make_stub,
        solution=stub.make_solution,
        hints=lambda exercise: split_hints((exercise.folder / "hints.md").read_text(encoding="utf-8")),
        name_rows=read_name_map((root / "docs" / "name-map.md").read_text(encoding="utf-8")),
    )


def read_masters(root: Path) -> list[Master]:
    """Every master, in order.

    Raises:
        MasterError: one breaks the form.
    """
    return [read_master(path) for path in masters(root)]


def planned(root: Path, sources: Sources, kinds: Sequence[Kind] = KINDS) -> dict[Path, str]:
    """Every notebook file that the masters of ``root`` build, with its text."""
    course = read_masters(root)
    neighbours = zip(course, [None, *course], [*course[1:], None], strict=False)
    return {
        folder_of(root, kind) / f"{master.slug}.ipynb": build_notebook(master, kind, sources, before, after)
        for master, before, after in neighbours
        for kind in kinds
    }


def stale(root: Path, files: dict[Path, str]) -> list[Path]:
    """Built notebooks whose master has gone; files with other names are nobody's business here."""
    there = [path for kind in KINDS for path in sorted(folder_of(root, kind).glob("*.ipynb"))]
    return [path for path in there if _OWN_NAME.fullmatch(path.name) and path not in files]


def build_all(root: Path, sources: Sources) -> list[Path]:
    """Write every notebook, remove stale ones; returns the paths that changed."""
    files = planned(root, sources)
    changed = []
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    for path in stale(root, files):
        path.unlink()
        changed.append(path)
    return changed


def faults(root: Path, sources: Sources) -> list[str]:
    """What is wrong with the masters and with ``notebooks/``; empty when all is well. Writes nothing."""
    found = []
    for master in read_masters(root):
        found += master_faults(master, sources)
    learner = planned(root, sources, ("learner",))
    for path, text in learner.items():
        name = path.relative_to(root)
        if not path.exists():
            found.append(f"{name} is missing: run `make notebooks`")
        elif path.read_text(encoding="utf-8") != text:
            found.append(f"{name} is not what its master builds: run `make notebooks`")
    old = [path for path in stale(root, learner) if path.parent == folder_of(root, "learner")]
    return found + [f"{path.relative_to(root)} has no master: run `make notebooks`" for path in old]


def master_faults(master: Master, sources: Sources) -> list[str]:
    """Where one master leaves the template, and code cells that do not compile."""
    found = template_faults(master)
    size = sum(not cell.role.endswith(_ONE_LINERS) for cell in cells_of(master, "learner", sources))
    if not MIN_CELLS <= size <= MAX_CELLS:
        found.append(f"{master.slug}.md: {size} cells to read; there must be {MIN_CELLS} to {MAX_CELLS}")
    if len(master.front.goals) not in (3, 4, 5):
        found.append(f"{master.slug}.md:1: {len(master.front.goals)} goals; there must be 3 to 5")
    for kind in KINDS:
        for cell in cells_of(master, kind, sources):
            if cell.kind == "code" and (fault := syntax_fault(cell)) and fault not in found:
                found.append(f"{master.slug}.md: {fault}")
    return list(dict.fromkeys(found))


def syntax_fault(cell: Cell) -> str:
    """Why a code cell does not compile, or ""; magics count as statements, ``await`` may stand anywhere."""
    lines = [re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in cell.source.splitlines()]
    try:
        compile("\n".join(lines), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        return f"a code cell does not compile: {error.msg}: {(error.text or '').strip()}"
    return ""
