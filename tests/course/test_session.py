"""The first and the last cell of a notebook: profile, seeds, and what is left behind."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import pytest
import torch

from sixfold import session
from stage1 import LLM


@pytest.fixture(autouse=True)
def same_threads_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_started", [])
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


def begin(monkeypatch: pytest.MonkeyPatch, profile: str) -> session.Profile:
    monkeypatch.setenv("SIXFOLD_PROFILE", profile)
    return session.start("01z", stage=1, minutes=7, minutes_gpu=5)


def test_start_says_what_it_runs_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    profile = begin(monkeypatch, "ci")
    shown = capsys.readouterr().out
    for text in ("notebook 01z · stage 1 · about 7 minutes", "profile  ci", "tiny · float32 · CPU", torch.__version__):
        assert text in shown
    assert (profile.name, profile.device, profile.dtype) == ("ci", "cpu", "float32")


def test_start_seeds_what_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = []
    for _ in range(2):
        begin(monkeypatch, "ci")
        draws.append((random.random(), torch.rand(3).tolist()))
    assert draws[0] == draws[1]


def test_profiles_are_keywords_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = begin(monkeypatch, "ci")
    with LLM(**profile.engine) as engine:
        texts = engine.generate("abc", use_tqdm=False)
    assert len(texts[0].outputs[0].token_ids) > 0
    assert profile.engine == profile.tiny


@pytest.mark.parametrize(
    ("profile", "stage", "message"),
    [("fast", 1, "SIXFOLD_PROFILE is fast; there are ci, laptop, gpu"), ("ci", 6, "stage 6 cannot be imported")],
)
def test_unfit_start_stops_with_the_mend(
    monkeypatch: pytest.MonkeyPatch, profile: str, stage: int, message: str
) -> None:
    monkeypatch.setenv("SIXFOLD_PROFILE", profile)
    with pytest.raises(RuntimeError, match=message):
        session.start("01z", stage=stage, minutes=7, minutes_gpu=5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_profile_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="torch sees no CUDA GPU: unset it, or run `sixfold doctor`"):
        begin(monkeypatch, "gpu")


def test_finish_before_start_is_explained() -> None:
    with pytest.raises(RuntimeError, match="run the notebook from its top"):
        session.finish()


def test_finish_ends_quietly_when_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path))
    begin(monkeypatch, "ci")
    session.finish()
    assert "sixfold serve --stage 1 --mine" in capsys.readouterr().out


def test_child_process_left_behind_is_named() -> None:
    before = session.surroundings()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert session.leftovers(before, session.surroundings()) == [f"process {child.pid}"]
    assert session.leftovers(before, session.surroundings()) == []


def test_open_port_left_behind_is_named() -> None:
    before = session.surroundings()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert session.leftovers(before, session.surroundings()) == [f"port {port}"]
    assert session.leftovers(before, session.surroundings()) == []


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not list what a process maps")
def test_shared_memory_left_behind_is_named() -> None:
    before = session.surroundings()
    memory = SharedMemory(create=True, size=4096)
    try:
        (left,) = session.leftovers(before, session.surroundings())
        assert left == f"shared memory /dev/shm/{memory.name}"
    finally:
        memory.close()
        memory.unlink()
    assert session.leftovers(before, session.surroundings()) == []


def test_finish_fails_when_something_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIXFOLD_WORK", str(tmp_path))
    begin(monkeypatch, "ci")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(AssertionError, match=f"left behind: port {server.getsockname()[1]}"),
    ):
        session.finish()
