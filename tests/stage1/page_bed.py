"""The page's files, and node to run its modules."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

PAGE = files("stage1.server").joinpath("page")
NAMES = sorted(entry.name for entry in PAGE.iterdir() if entry.is_file())
SOURCES = {name: PAGE.joinpath(name).read_text(encoding="utf-8") for name in NAMES}

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture
def run_js(tmp_path: Path) -> Any:
    """Runs a script beside the page's modules and returns what it prints, as JSON."""
    for name in NAMES:
        (tmp_path / name).write_text(SOURCES[name], encoding="utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}')

    def run(script: str, given: Any = None) -> Any:
        (tmp_path / "main.js").write_text(f"const given = {json.dumps(given)};\n{script}", encoding="utf-8")
        done = subprocess.run(["node", str(tmp_path / "main.js")], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def as_json(trace: list[Any]) -> list[Any]:
    """The events as the page receives them, and one of a kind that it does not know."""
    return [msgspec.to_builtins(event) for event in trace] + [{"kind": "of_a_later_stage", "t": 1}]
