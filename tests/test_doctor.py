"""``sixfold doctor``: each fault is seen, and the mend stands beside it."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sixfold import checks
from sixfold.cli import main


def test_doctor_shows_faults_with_mends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> checks.Check:
        raise ImportError("no torch")

    fine: dict[str, Any] = {
        "one": lambda: checks.Check("ok", "good"),
        "two": lambda: checks.Check("warn", "slow", "buy"),
    }
    monkeypatch.setattr("sixfold.commands.doctor.CHECKS", fine)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "→ buy" in shown
    assert shown.endswith("Ready.\n")
    monkeypatch.setattr("sixfold.commands.doctor.CHECKS", {**fine, "three": broken})
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "ImportError: no torch" in shown
    assert shown.endswith("Mend first: three.\n")


def test_doctor_stops_at_a_wrong_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    assert checks.check_triton().status == "ok"
    done = subprocess.CompletedProcess([], 1, stdout="0\n", stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    check = checks.check_triton()
    assert (check.status, "sum is wrong (0)" in check.found, check.mend != "") == ("fail", True, True)


def test_doctor_sees_a_taken_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(checks, "PORT", taken.getsockname()[1])
        check = checks.check_port()
    assert (check.status, "--port" in check.mend) == ("warn", True)
    assert checks.check_port().status == "ok"


def test_doctor_sees_a_full_disk_and_a_closed_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIXFOLD_CACHE", str(tmp_path / "new" / "folder"))
    assert checks.check_disk().status == "ok"
    monkeypatch.setattr(checks, "MIN_FREE_DISK", 1 << 80)
    assert checks.check_disk().status == "warn"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SIXFOLD_CACHE", str(tmp_path / "file" / "folder"))
    assert checks.check_disk().status == "fail"
