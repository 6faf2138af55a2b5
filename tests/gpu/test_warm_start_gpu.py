"""Once an engine has started, no request waits for a kernel to be compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file

heads = load_file(Path(__file__).parents[1] / "stage3" / "heads_bed.py")

pytestmark = pytest.mark.gpu


BLOCKS = {"num_gpu_blocks_override": 4000}  # then no step is taken to measure the memory


@pytest.mark.parametrize("method", ["none", "ngram", "medusa", "eagle"])
@pytest.mark.parametrize("start", [{}, BLOCKS, {**BLOCKS, "as_large": True, "max_model_len": 2048}])
def test_nothing_is_compiled_once_the_engine_has_started(method: str, start: dict, tmp_path: Path) -> None:
    serve(method, {"gpu_memory_utilization": 0.2, **start}, tmp_path)


@pytest.mark.parametrize("method", ["none", "eagle"])
def test_nothing_is_compiled_where_there_are_no_graphs(method: str, tmp_path: Path) -> None:
    serve(method, {**BLOCKS, "enforce_eager": True}, tmp_path)


def serve(method: str, settings: dict, tmp_path: Path) -> None:
    """A mixed load on an engine of its own."""
    if method != "none":
        settings["speculative_config"] = {"method": method, "num_speculative_tokens": 3}
        if method != "ngram":
            heads.write_heads(tmp_path, method)
            settings["speculative_config"]["model"] = str(tmp_path)
    script = Path(__file__).with_name("warm_start.py")  # its own process: in this one most are compiled already
    command = [sys.executable, str(script), json.dumps(settings)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["requests"] > 200
    assert not found["failed"]
    assert not found["compiled"], "\n".join(found["compiled"])
