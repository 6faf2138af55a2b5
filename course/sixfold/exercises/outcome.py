"""What a check found, and how it is said.

Owns the order of the message: what was expected, the smallest input that fails, the first difference, the idea that is
probably missing, the hint to open. Never shows a solution. Does not run anything.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any, Literal, get_args

Status = Literal["pass", "fail", "error", "not attempted"]
MARKS: dict[str, str] = {"pass": "✓", "fail": "✗", "error": "✗", "not attempted": "○"}
MOST_OUTPUT = 2_000  # characters of what the learner's code printed
MOST_LINES = 20  # of it


@dataclass(frozen=True)
class Outcome:
    """The result of checking one file."""

    exercise_id: str
    status: Status
    message: str  # all that is shown to the learner
    case: str | None = None  # the smallest failing one
    advice_id: str | None = None  # of the misconception that was recognised
    num_cases: int = 0
    output: str = ""  # what the learner's code printed, shortened

    def __str__(self) -> str:
        return self.message

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """One short line as a cell's result: the message has been printed."""
        printer.text(f"<{self.exercise_id}: {self.status}>")


@dataclass(frozen=True)
class Finding:
    """What the child process found; it travels as JSON."""

    status: Status
    headline: str = ""
    case: str | None = None
    place: int = 0  # of that case, from 1
    num_cases: int = 0
    expected: str = ""  # in words
    inputs: str = ""
    difference: str = ""
    where: str = ""  # lines of the learner's file, for an error
    mistake: str | None = None  # wrong_… that was recognised
    idea: str = ""
    advice: str = ""


def finding_from(value: dict[str, Any]) -> Finding:
    """Read a finding that came as JSON.

    Raises:
        TypeError, ValueError: it is not one.
    """
    finding = Finding(**value)
    if finding.status not in get_args(Status):
        raise ValueError(f"unknown status {finding.status!r}")
    return finding


def make_outcome(
    exercise_id: str, finding: Finding, file: str, next_step: str, output: str, misconceptions: dict[str, str]
) -> Outcome:
    """Put a finding about ``file`` into words; ``next_step`` is what the learner can do now."""
    lines = [f"{MARKS[finding.status]} {exercise_id} {_headline(finding, file)}"]
    if finding.expected:
        lines.append(f"  expected: {finding.expected}")
    if finding.inputs:
        lines += ["  input:", finding.inputs]
    if finding.difference:
        lines.append(f"  difference: {finding.difference}")
    if finding.where:
        lines.append(textwrap.indent(finding.where, "    "))
    if finding.idea:
        lines += [f"  perhaps: {finding.idea}", textwrap.indent(finding.advice, "    ")]
    if output:
        lines += ["  your code printed:", textwrap.indent(output, "    ")]
    lines.append(f"  next: {next_step}")
    name = finding.mistake
    advice_id = misconceptions.get(name, name.removeprefix("wrong_")) if name else None
    return Outcome(exercise_id, finding.status, "\n".join(lines), finding.case, advice_id, finding.num_cases, output)


def _headline(finding: Finding, file: str) -> str:
    if finding.status == "pass":
        return f"passes all {finding.num_cases} cases (yours, {file})"
    if finding.status == "fail":
        return f"fails in case {finding.place} of {finding.num_cases}, “{finding.case}” (yours, {file})"
    if finding.status == "not attempted":
        return f"is not attempted yet: {finding.headline}"
    place = f" in case {finding.place} of {finding.num_cases}, “{finding.case}”" if finding.case else ""
    return f"stops with an error{place} (yours, {file}): {finding.headline}"


def next_step(exercise_id: str, status: Status, next_hint: int, in_use: bool) -> str:
    """What the learner can do now.

    Args:
        exercise_id: of the exercise that was checked.
        status: what the check found.
        next_hint: the first level that has not been opened; 0 = all have.
        in_use: whether the file is the one that the engine takes.
    """
    if status == "pass":
        engine = "; `--mine` and the notebooks run it in the engine" if in_use else ""
        return f'show("{exercise_id}") draws your result{engine}'
    hint = (
        f'hint("{exercise_id}", {next_hint}), in a terminal `sixfold hint {exercise_id}`'
        if next_hint
        else f'all hints are open; solution("{exercise_id}") shows the engine\'s own version'
    )
    return f"write it, and check again; when stuck: {hint}" if status == "not attempted" else hint


def shortened(text: str, limit: int = MOST_OUTPUT) -> str:
    """The beginning of a text; a mark says that something was left out."""
    text = text.rstrip()
    kept = "\n".join(text[:limit].splitlines()[:MOST_LINES])
    return text if len(kept) == len(text) else f"{kept}\n… (shortened)"
