"""Checking a learner's file, in a process of its own.

Owns the process: its start, its time limit, its end. A loop in compiled code cannot be interrupted from inside, and
code that breaks its process must not break the notebook. Does not run or load any of the learner's code itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from sixfold.exercises import store
from sixfold.exercises.catalog import Exercise, find
from sixfold.exercises.outcome import Finding, Outcome, finding_from, make_outcome, next_step, shortened

TIME_LIMIT = 30.0  # seconds for the learner's code on all cases
START_LIMIT = 180.0  # seconds to import torch and the stage, on a machine that has other things to do
MOST_MESSAGES = 4 * 2**20  # bytes
HINT_LEVELS = 3


def check(exercise: Exercise | str, path: Path | None = None, time_limit: float = TIME_LIMIT) -> Outcome:
    """Check the learner's file of an exercise, or the file at ``path``.

    Only the learner's own file changes what is remembered of the exercise.

    Raises:
        UsageError: there is no such exercise.
    """
    if isinstance(exercise, str):
        exercise = find(exercise)
    own = store.exercise_file(exercise)
    file = own if path is None else path.resolve()
    shown = store.shown_path(file)
    if not file.is_file():
        start = f"run its %%exercise cell, or `sixfold reset {exercise.id}`, which writes the stub there"
        return _outcome(exercise, Finding("not attempted", f"there is no {shown} yet; {start}"), shown, "", False)
    content = store.digest(exercise, file)
    finding, output = _run(exercise, file, time_limit)
    in_use = file == own.resolve()
    outcome = _outcome(exercise, finding, shown, output, in_use)
    if in_use:
        store.remember_check(exercise, outcome.status, content)
    return outcome


def _outcome(exercise: Exercise, finding: Finding, shown: str, output: str, in_use: bool) -> Outcome:
    opened = store.record_of(exercise).hints
    step = next_step(exercise.id, finding.status, opened + 1 if opened < HINT_LEVELS else 0, in_use)
    return make_outcome(exercise.id, finding, shown, step, output, exercise.misconceptions)


@dataclass
class _Progress:
    """What the child has told so far."""

    started: bool = False
    case: dict[str, Any] = field(default_factory=dict)
    finding: Finding | None = None


def _run(exercise: Exercise, file: Path, time_limit: float) -> tuple[Finding, str]:
    """Start the child, listen until it ends or its time is over, and see to it that it is gone."""
    progress = _Progress()
    with tempfile.TemporaryFile() as output, _child(exercise, file, output, time_limit) as (process, pipe):
        ended = _listen(pipe, progress, time_limit)
        if ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        code = process.poll()
        output.seek(0)
        text = shortened(output.read(100_000).decode("utf-8", errors="replace"))
    if progress.finding is not None:
        return progress.finding, text
    if not progress.started:
        why = f"did not start within {START_LIMIT:.0f} s" if not ended else f"could not start (exit code {code})"
        return Finding("error", f"the check {why}; `sixfold doctor` looks for the cause"), text
    if not ended:
        return _at_case(progress, f"no answer after {time_limit:g} s: is there a loop that never ends?"), text
    why = ": does a load or a store without a mask leave its tensor?" if exercise.kernel else ""
    return _at_case(progress, f"your code ended the process ({_ending(code)}){why}"), text


def _at_case(progress: _Progress, headline: str) -> Finding:
    """An error in the case that was being run."""
    case = progress.case
    finding = Finding("error", headline)
    if not case:
        return replace(finding, where="(while the file was imported)")
    return replace(finding, case=case["name"], place=case["place"], num_cases=case["num"], expected=case["words"])


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return "it closed the check's pipe" if code is None else f"exit code {code}"


@contextlib.contextmanager
def _child(
    exercise: Exercise, file: Path, output: IO[bytes], time_limit: float
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The running child and the end of its pipe; on leaving, it and all that it started are killed."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sixfold.exercises.child",
             str(exercise.folder), str(file), str(writing), str(int(4 * time_limit + START_LIMIT))],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            pass_fds=(writing,), start_new_session=True, env=_environment(),
        )  # fmt: skip
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    try:
        yield process, reading
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(reading)


def _environment() -> dict[str, str]:
    """As here, on the CPU: checks are exact and small, and kernels run in the interpreter."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1",
           "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg"}  # fmt: skip
    return {**os.environ, **own}


def _listen(pipe: int, progress: _Progress, time_limit: float) -> bool:
    """Take in messages; False when the time was over first. The clock starts anew with each of the child's phases."""
    deadline = time.monotonic() + START_LIMIT
    text, received = b"", 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return False
        data = os.read(pipe, 65_536)
        received += len(data)
        if not data or received > MOST_MESSAGES:
            return True
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            if _take_in(line, progress):
                deadline = time.monotonic() + time_limit


def _take_in(line: bytes, progress: _Progress) -> bool:
    """Note a message; True when a phase begins. What is not a message of ours is ignored."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        message = json.loads(line)
        if "found" in message:
            progress.finding = finding_from(message["found"])
        elif message["at"] == "case":
            progress.case = {key: message[key] for key in ("name", "place", "num", "words")}
        else:
            progress.started = True
            return True
    return False
