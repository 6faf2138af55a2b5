"""The learner's folder: solved files, old copies, and what is remembered of each exercise.

Owns where ``work/`` is and what lies in it. A pass is remembered for the exact content of a file and of its check: an
edited file has to be checked again. Everything is small JSON, written whole, one file an exercise.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from sixfold.exercises.catalog import Exercise

KEPT_PASSES = 20  # digests of versions that passed, the newest


@dataclass
class Record:
    """What is remembered of one exercise."""

    attempts: int = 0  # checks of something that was attempted
    status: str = ""  # of the latest check
    digest: str = ""  # of the content that had that status
    passed: list[str] = field(default_factory=list)  # digests of contents that passed
    passed_at: str = ""  # the first time
    hints: int = 0  # levels that were opened
    solution_seen: bool = False


def root() -> Path:
    """The folder of the repository; where the package is installed without it, the current folder."""
    repository = Path(__file__).resolve().parents[3]
    return repository if (repository / "stages").is_dir() else Path.cwd()


def work_folder() -> Path:
    """Where the learner's files lie: ``$SIXFOLD_WORK``, or ``work/`` in the repository."""
    own = os.environ.get("SIXFOLD_WORK")
    return Path(own).expanduser().resolve() if own else root() / "work"


def exercise_file(exercise: Exercise) -> Path:
    """The learner's version of an exercise, whether it exists or not."""
    return work_folder() / f"{exercise.module_name}.py"


def shown_path(path: Path) -> str:
    """A path as short as it can be said: from the repository's folder, or its last two parts."""
    path = path.resolve()
    return path.relative_to(root()).as_posix() if path.is_relative_to(root()) else "/".join(path.parts[-2:])


def digest(exercise: Exercise, path: Path) -> str:
    """Names the content of a file together with that of the check it has to pass."""
    total = hashlib.sha256()
    for file in (path, exercise.folder / "check.py", exercise.folder / "spec.py"):
        total.update(hashlib.sha256(file.read_bytes() if file.is_file() else b"").digest())
    return total.hexdigest()


def record_of(exercise: Exercise) -> Record:
    """What is remembered; an empty record if nothing is, or if it cannot be read."""
    given = read_json(_record_file(exercise))
    known = {f.name: f for f in fields(Record)}
    record = Record()
    for name, value in given.items():
        if name in known and isinstance(value, type(getattr(record, name))):
            setattr(record, name, value)
    return record


def change_record(exercise: Exercise, change: Callable[[Record], object]) -> Record:
    """Let ``change`` alter the exercise's record, and keep it."""
    record = record_of(exercise)
    change(record)
    write_json(_record_file(exercise), asdict(record))
    return record


def remember_check(exercise: Exercise, status: str, content: str) -> None:
    """Keep the status of a check of the file whose digest is ``content``."""

    def change(record: Record) -> None:
        record.attempts += status != "not attempted"
        record.status, record.digest = status, content
        if status == "pass":
            record.passed = [*(old for old in record.passed if old != content), content][-KEPT_PASSES:]
            record.passed_at = record.passed_at or now()

    change_record(exercise, change)


def write_file(exercise: Exercise, text: str) -> tuple[Path, Path | None]:
    """Save the learner's version; a different one that was there before is kept, dated, in ``old/``.

    Returns:
        The file, and the copy of what it held before (``None`` if nothing had to be kept).
    """
    path = exercise_file(exercise)
    copy = None
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != text and _worth_keeping(exercise, path):
        copy = keep_copy(path)
    _write(path, text)
    return path, copy


def keep_copy(path: Path) -> Path:
    """Copy a file into ``old/``, with the time in its name; an earlier copy is never overwritten."""
    stamp = re.sub(r"\W", "-", now())
    folder = path.parent / "old"
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(1_000):
        copy = folder / f"{path.stem}.{stamp}{f'-{i}' if i else ''}{path.suffix}"
        with contextlib.suppress(FileExistsError), copy.open("xb") as file:
            file.write(path.read_bytes())
            return copy
    raise OSError(f"{folder} has a thousand copies of this second: move some of them away")


def now() -> str:
    """The local time, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if there is none that can be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace a JSON file in one step, so that whoever reads it sees the old or the new one."""
    _write(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def _record_file(exercise: Exercise) -> Path:
    return work_folder() / "records" / f"{exercise.module_name}.json"


def _worth_keeping(exercise: Exercise, path: Path) -> bool:
    """Versions that passed are kept; every other one is on its way to the next."""
    return digest(exercise, path) in record_of(exercise).passed


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
