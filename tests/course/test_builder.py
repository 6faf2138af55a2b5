"""Masters to notebooks: the cells of each build, what the check finds, and that a master always gives the same file."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sixfold.builder import build
from sixfold.builder.master import Master, parse_master, read_master
from sixfold.builder.notebook import KINDS, Cell, Kind, Sources, as_json, build_notebook, cells_of
from sixfold.builder.texts import split_hints
from sixfold.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "example" / "01z_example.md"
TEXT = EXAMPLE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def sources() -> Sources:
    return build.course_sources(ROOT)


@pytest.fixture(scope="module")
def example() -> Master:
    return read_master(EXAMPLE)


def notebook(master: Master, kind: Kind, sources: Sources, **neighbours: Master) -> Any:
    return json.loads(build_notebook(master, kind, sources, **neighbours))


# --- the builds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_build_is_deterministic_valid_and_stripped(example: Master, sources: Sources, kind: Kind) -> None:
    text = build_notebook(example, kind, sources)
    assert text == build_notebook(read_master(EXAMPLE), kind, build.course_sources(ROOT))
    parsed = nbformat.reads(text, as_version=4)
    nbformat.validate(parsed)
    assert nbformat.writes(parsed) + "\n" == text
    assert set(parsed.metadata) == {"kernelspec", "language_info"}
    code = [cell for cell in parsed.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert len({cell.id for cell in parsed.cells}) == len(parsed.cells)


def test_cells_come_in_the_order_of_the_template(example: Master, sources: Sources) -> None:
    ids = [cell["id"] for cell in notebook(example, "learner", sources)["cells"]]
    assert ids[:3] == ["title", "setup", "goals"]
    assert ids[-1] == "finish"
    start = ids.index("exercise-1-2-card")
    parts = ("card", "stub", "check", "show", "seen", "solution")
    assert ids[start : start + 6] == [f"exercise-1-2-{part}" for part in parts]


def test_only_the_instructor_sees_instructor_cells(example: Master, sources: Sources) -> None:
    cells = {kind: cells_of(example, kind, sources) for kind in KINDS}
    assert [len(cells[kind]) for kind in KINDS] == [len(cells["learner"]) + extra for extra in (0, 2, 0)]
    for kind in ("learner", "solved"):
        assert "For instructors" not in as_json(cells[kind])
    # remarks at the end stand below the last cell
    assert [cell.tags for cell in cells["instructor"][-2:]] == [("instructor",)] * 2
    assert cells["instructor"][-3].role == "finish"


def test_only_the_solved_build_differs_in_the_stub(example: Master, sources: Sources) -> None:
    learner, solved = (cells_of(example, kind, sources) for kind in ("learner", "solved"))
    differing = [a.role for a, b in zip(learner, solved, strict=True) if a != b]
    assert differing == ["exercise-1-2-stub"]
    stub, solution = ({c.role: c.source for c in cells}["exercise-1-2-stub"] for cells in (learner, solved))
    assert stub.startswith("%%exercise 1.2\n")
    assert solution.startswith("%%exercise 1.2\n")
    assert "raise NotAttempted" in stub
    assert "raise NotAttempted" not in solution


def test_card_says_what_the_exercise_folder_says(example: Master, sources: Sources) -> None:
    cells = {cell.role: cell.source for cell in cells_of(example, "learner", sources)}
    exercise = sources.exercise("1.2")
    card, seen = cells["exercise-1-2-card"], cells["exercise-1-2-seen"]
    for text in (exercise.title, f"{exercise.minutes} min", "●●○○○", exercise.contract.strip(), exercise.vllm,
                 "Not tested", "solution", "Report this exercise"):  # fmt: skip
        assert text in card
    assert all(f"| `{name}` | `{shape}` |" in card for name, shape, *_ in exercise.shapes)
    assert "Lengths stay what they were" in seen
    assert seen.count("<details>") == len(sources.hints(exercise)) == 3


def test_title_says_where_one_is_and_links_the_neighbours(example: Master, sources: Sources) -> None:
    other = dataclasses.replace(example, slug="01y_other")
    title = notebook(example, "learner", sources, before=other)["cells"][0]["source"]
    assert "**▶ 1 single_gpu (you are here)**" in "".join(title)
    assert "← [01y · A small example](01y_other.ipynb)" in "".join(title)
    assert "→" not in "".join(title)


def test_vllm_table_comes_from_the_name_map(example: Master, sources: Sources) -> None:
    table = {cell.role: cell.source for cell in cells_of(example, "learner", sources)}["vllm"]
    assert (
        "| `model.rope.apply_rope`, `model.rope.rope_tables` | `vllm/model_executor/layers/rotary_embedding/`" in table
    )
    assert table.endswith("Left out: scaled variants beyond those that the models here need.")
    unknown = dataclasses.replace(example, front=dataclasses.replace(example.front, vllm=["stage1.nothing"]))
    with pytest.raises(ValueError, match=r"no row for stage1\.nothing"):
        cells_of(unknown, "learner", sources)


def test_inserting_a_cell_changes_no_other_id(example: Master, sources: Sources) -> None:
    grown = parse_master(
        example.slug, TEXT.replace("<!-- cell break -->", "```python\nnew = 1\n```\n\n<!-- cell break -->")
    )
    before, after = ([c["id"] for c in notebook(m, "learner", sources)["cells"]] for m in (example, grown))
    assert len(after) == len(before) + 1
    assert [id_ for id_ in after if id_ in before] == before


def test_links_lead_to_the_repository_from_every_build(example: Master, sources: Sources) -> None:
    for kind in KINDS:
        folder = build.folder_of(ROOT, kind)
        (link,) = {
            part.partition("#")[0] for part in build_notebook(example, kind, sources).split("](") if "#rope" in part
        }
        assert (folder / link).resolve() == ROOT / "docs" / "glossary.md"


def test_equal_cells_get_different_ids() -> None:
    cells = json.loads(as_json([Cell("code", "x")] * 3))["cells"]
    assert len({cell["id"] for cell in cells}) == 3


def test_hints_are_split_at_their_numbers() -> None:
    assert split_hints("# title\n\n## 1\n\na\n\nb\n## 2\nc\n") == ["a\n\nb", "c"]


# --- what the check finds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("```python ladder", "```python", "there is no `ladder`"),
        ("<!-- exercise 1.2 -->", "", "there is no `exercise`"),
        ("<!-- cell pain -->", "<!-- cell idea -->", "there is no `pain`"),
        ("```python example\n", "```python together\nx = 1\n```\n```python example\n",
         "the first `together` comes before the first `exercise`"),
        ("assert True", "assert =", "does not compile: invalid syntax: assert ="),
        ('"Say which place of a notebook does what", "Read a timeline"', "", "1 goals; there must be 3 to 5"),
    ],
)  # fmt: skip
def test_planted_fault_is_found(sources: Sources, old: str, new: str, fault: str) -> None:
    assert TEXT.count(old) >= 1
    master = parse_master("01z_example", TEXT.replace(old, new, 1))
    assert any(fault in found for found in build.master_faults(master, sources))


def test_too_short_a_notebook_is_found(example: Master, sources: Sources) -> None:
    assert any("cells to read; there must be 25 to 45" in f for f in build.master_faults(example, sources))


@pytest.mark.parametrize(
    "source", ["%load_ext a\nx = await f()", "%%exercise 1.2\nx = 1", "if x:\n    !ls\nasync def f(): ..."]
)
def test_magics_and_await_compile(source: str) -> None:
    assert build.syntax_fault(Cell("code", source)) == ""


def test_building_writes_once_removes_what_has_no_master_and_leaves_the_rest(tmp_path: Path, sources: Sources) -> None:
    (tmp_path / "course" / "masters").mkdir(parents=True)
    shutil.copy(EXAMPLE, tmp_path / "course" / "masters")
    written = build.build_all(tmp_path, sources)
    folders = [tmp_path / "notebooks", tmp_path / "build/notebooks/instructor", tmp_path / "build/notebooks/solved"]
    assert sorted(written) == sorted(folder / "01z_example.ipynb" for folder in folders)
    assert build.build_all(tmp_path, sources) == []
    assert [f for f in build.faults(tmp_path, sources) if "ipynb" in f] == []

    (tmp_path / "notebooks/01z_example.ipynb").write_text("{}")
    (tmp_path / "notebooks/00_gone.ipynb").write_text("{}")
    (tmp_path / "notebooks/mine.ipynb").write_text("{}")
    assert [f for f in build.faults(tmp_path, sources) if "ipynb" in f] == [
        "notebooks/01z_example.ipynb is not what its master builds: run `make notebooks`",
        "notebooks/00_gone.ipynb has no master: run `make notebooks`",
    ]
    assert {path.name for path in build.build_all(tmp_path, sources)} == {"01z_example.ipynb", "00_gone.ipynb"}
    assert sorted(path.name for path in (tmp_path / "notebooks").iterdir()) == ["01z_example.ipynb", "mine.ipynb"]


# --- the course itself ------------------------------------------------------------------------------


def test_masters_keep_the_form_and_notebooks_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(build.read_masters(ROOT)) > 0
    code = main(["notebooks", "check"])
    assert (code, capsys.readouterr().out) == (
        0, "notebooks: every master keeps the form, and notebooks/ is up to date\n"
    )  # fmt: skip


def test_exercises_come_after_their_prerequisites(sources: Sources) -> None:
    met: list[str] = []
    for master in build.read_masters(ROOT):
        for exercise_id in master.exercises:
            missing = set(sources.exercise(exercise_id).prerequisites) - set(met)
            assert not missing, f"{master.slug}: {exercise_id} needs {missing}, which no earlier exercise is"
            met.append(exercise_id)
