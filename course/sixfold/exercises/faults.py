"""An exception of a learner's code, in a few lines: what it says, and where in their own file it came from.

Owns the shortening. Frames of the engine, of the check and of torch are left out.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

from sixfold.exercises.outcome import shortened

MOST_FRAMES = 4
MOST_LETTERS = 500  # of an exception's message


def root(error: BaseException) -> BaseException:
    """What a kernel's code raised: Triton's interpreter wraps it once for each kernel and function it came through."""
    while type(error).__module__.startswith("triton.") and error.__cause__ is not None:
        error = error.__cause__
    return error


def headline(error: BaseException) -> str:
    """``TypeError: its message``, or only the type; a syntax error says what is wrong and where."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    try:
        text = shortened(str(error), MOST_LETTERS)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def where(error: BaseException, path: Path, shown: str) -> str:
    """The lines of ``path`` that the error came through, the last one last; empty if it never was there."""
    if isinstance(error, SyntaxError) and _is_file(error.filename, path):
        return _syntax(error, shown)
    frames = [(code, line) for code, line in _frames(error) if _is_file(code.co_filename, path)]
    lines = []
    if len(frames) > MOST_FRAMES:
        lines.append(f"… {len(frames) - MOST_FRAMES} earlier lines")
    for code, line in frames[-MOST_FRAMES:]:
        place = "" if code.co_name == "<module>" else f", in {code.co_qualname}"
        lines += [f"{shown}, line {line}{place}", f"    {linecache.getline(code.co_filename, line).strip()}"]
    return "\n".join(lines)


def innermost(error: BaseException, path: Path) -> str | None:
    """The function of ``path`` that was running last: ``Class.method``."""
    names = [code.co_qualname for code, _ in _frames(error) if _is_file(code.co_filename, path)]
    return names[-1] if names else None


def _frames(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    return ((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))


def _syntax(error: SyntaxError, shown: str) -> str:
    text = (error.text or "").rstrip("\n")
    stripped = text.lstrip()
    lines = [f"{shown}, line {error.lineno}", f"    {stripped}"]
    if error.offset and stripped:
        column = max(0, min(error.offset - 1 - (len(text) - len(stripped)), len(stripped)))
        lines.append("    " + " " * column + "^")
    return "\n".join(lines)


def _is_file(filename: str | None, path: Path) -> bool:
    return filename is not None and filename == str(path.resolve())
