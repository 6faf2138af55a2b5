"""The notebooks, run: learner and solved builds from top to bottom, and what their checks say.

Two runs, because neither alone proves both. nbval runs every cell and fails on an error; it says nothing about a check
that printed the wrong verdict. A second run takes only the cells of the exercises and reads the verdicts.

Every kernel gets a folder for the learner's work of its own, the profile ``ci``, and no model hub.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from sixfold.builder import build
from sixfold.builder.notebook import Kind

ROOT = Path(__file__).parents[2]
CELL_SECONDS = 120  # without a limit, a kernel that died would be waited for half an hour
NOTEBOOK_SECONDS = 60  # on two cores; a busy machine gets twice that
CHILD_SECONDS = 280
MASTERS = sorted(path.stem for path in (ROOT / "course" / "masters").glob("*.md"))
BUILDS: tuple[Kind, ...] = ("learner", "solved")
RUN_FOR_CHECKS = re.compile(r"setup|exercise-[\d-]+-(stub|check)")

pytestmark = pytest.mark.timeout(2 * CHILD_SECONDS)


@pytest.fixture(scope="module")
def built() -> dict[Path, str]:
    """Every build, from the masters as they are now, by its place."""
    return build.planned(ROOT, build.course_sources(ROOT), BUILDS)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel inherits: its own work folder and Jupyter folders, the tiny model, the sources of this tree."""
    sources = [*(str(path) for path in sorted(ROOT.glob("stages/0?_*"))), str(ROOT / "course")]
    inherited = os.environ.get("PYTHONPATH", "")
    values = {
        "PYTHONPATH": os.pathsep.join([*sources, *filter(None, [inherited])]),
        "SIXFOLD_PROFILE": "ci", "SIXFOLD_WORK": str(tmp_path / "work"), "HF_HUB_OFFLINE": "1",
        "IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "JUPYTER_DATA_DIR": str(tmp_path / "data"),
        "MPLCONFIGDIR": str(tmp_path / "matplotlib"), "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def write(built: dict[Path, str], master: str, kind: Kind, folder: Path) -> Path:
    """One build as a file in ``folder``."""
    path = folder / f"{master}_{kind}.ipynb"
    path.write_text(built[build.folder_of(ROOT, kind) / f"{master}.ipynb"], encoding="utf-8")
    return path


def run_nbval(notebook: Path, cell_seconds: int = CELL_SECONDS) -> tuple[subprocess.CompletedProcess[str], float]:
    """``pytest --nbval-lax`` on one file, in a process of its own; also the seconds that its cells took."""
    (notebook.parent / "pytest.ini").write_text("[pytest]\n")
    report = notebook.with_suffix(".xml")
    command = [
        sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", f"--nbval-cell-timeout={cell_seconds}",
        "-p", "no:cacheprovider", "-p", "no:timeout", "-q", f"--junitxml={report}", str(notebook),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=notebook.parent, capture_output=True, text=True, timeout=CHILD_SECONDS)
    seconds = sum(float(case.get("time", 0)) for case in ET.parse(report).iter("testcase"))
    return done, seconds


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize("master", MASTERS)
def test_notebook_runs_without_an_error(
    built: dict[Path, str], environment: None, tmp_path: Path, master: str, kind: Kind
) -> None:
    done, seconds = run_nbval(write(built, master, kind, tmp_path))
    assert done.returncode == 0, done.stdout[-6000:]
    assert seconds < 2 * NOTEBOOK_SECONDS, f"{master} took {seconds:.0f} s; there are {NOTEBOOK_SECONDS} s on two cores"


@pytest.mark.parametrize(("kind", "verdict"), [("learner", "not attempted"), ("solved", "pass")])
@pytest.mark.parametrize("master", MASTERS)
def test_checks_say_what_they_should(
    built: dict[Path, str], environment: None, tmp_path: Path, master: str, kind: Kind, verdict: str
) -> None:
    notebook = nbformat.read(write(built, master, kind, tmp_path), as_version=4)
    notebook.cells = [cell for cell in notebook.cells if RUN_FOR_CHECKS.fullmatch(cell.id)]
    checks = [cell for cell in notebook.cells if "check" in cell.metadata.get("tags", [])]
    for cell in checks:
        # What check() returns, as text that no wording can blur.
        cell.source = f"import json\nprint('VERDICT', json.dumps({cell.source}.status))"
    NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert [said(cell) for cell in checks] == [verdict] * len(checks)
    assert len(checks) > 0


def said(cell: Any) -> str:
    """The verdict in a cell's output."""
    text = "".join(output.get("text", "") for output in cell.outputs)
    found = re.findall(r"^VERDICT (.*)$", text, re.MULTILINE)
    return str(json.loads(found[-1])) if found else text


# --- the tests above can fail -----------------------------------------------------------------------


def small(tmp_path: Path, *sources: str) -> Path:
    """A notebook with these code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = tmp_path / "small.ipynb"
    nbformat.write(notebook, path)
    return path


def test_a_cell_that_raises_fails_the_run(environment: None, tmp_path: Path) -> None:
    done, _ = run_nbval(small(tmp_path, "x = 1", "assert x == 2", "x"))
    assert done.returncode == 1
    assert "1 failed, 2 passed" in done.stdout


def test_a_kernel_that_dies_ends_the_run_in_time(environment: None, tmp_path: Path) -> None:
    done, _ = run_nbval(small(tmp_path, "import os\nos._exit(1)"), cell_seconds=3)
    assert done.returncode != 0
