"""Quizzes: a few questions a notebook, where every wrong answer is a misconception with an explanation.

Owns ``course/masters/quiz/<id>.toml``, and what the learner answered. An item looks so:

    [[item]]
    question = "What does paging change about the attention of one request?"
    answer = "b"
    [item.options]
    a = "It gets faster"
    b = "Nothing: it frees memory"
    [item.explains]
    a = "No kernel reads fewer bytes. Batches grow because …"
    b = "Right: …"
    [item.misconceptions]
    a = "paging-is-faster"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sixfold.errors import UsageError
from sixfold.exercises import store


@dataclass(frozen=True)
class Item:
    """A question with its options; each has an explanation."""

    question: str
    answer: str  # the key of the right option
    options: dict[str, str]
    explains: dict[str, str]
    misconceptions: dict[str, str] = field(default_factory=dict)  # of the wrong options


def folder() -> Path:
    """Where the quizzes lie."""
    return store.root() / "course" / "masters" / "quiz"


def load_quiz(quiz_id: str, where: Path | None = None) -> list[Item]:
    """The items of a quiz.

    Raises:
        UsageError: there is no such quiz.
        ValueError: an item lacks an explanation, or its answer is not among its options.
    """
    path = (where or folder()) / f"{quiz_id}.toml"
    if not path.is_file():
        here = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml"))) or "none"
        raise UsageError(f"there is no quiz {quiz_id!r}; present: {here}")
    items = [Item(**item) for item in tomllib.loads(path.read_text(encoding="utf-8"))["item"]]
    for number, item in enumerate(items, 1):
        if item.answer not in item.options or item.options.keys() != item.explains.keys():
            raise ValueError(
                f"{path}, item {number}: every option needs an explanation, and the answer must be one of them"
            )
    return items


def ask(quiz_id: str, where: Path | None = None) -> str:
    """The questions, numbered, without their answers."""
    items = load_quiz(quiz_id, where)
    blocks = []
    for number, item in enumerate(items, 1):
        options = "\n".join(f"   {key}) {text.strip()}" for key, text in item.options.items())
        blocks.append(f"{number}. {item.question.strip()}\n{options}")
    return "\n\n".join(blocks) + f'\n\nanswer with: answer("{quiz_id}", 1, "{next(iter(items[0].options))}")'


def answer(quiz_id: str, number: int, choice: str, where: Path | None = None) -> str:
    """Say whether ``choice`` is right and why; the first answer to a question is the one that is counted.

    Raises:
        UsageError: there is no such question or option.
    """
    items = load_quiz(quiz_id, where)
    if not 1 <= number <= len(items):
        raise UsageError(f"quiz {quiz_id} has the questions 1 to {len(items)}, not {number}")
    item, key = items[number - 1], str(choice).strip().lower()
    if key not in item.options:
        raise UsageError(f"question {number} has the options {', '.join(item.options)}, not {choice!r}")
    right = key == item.answer
    kept = store.read_json(_file())
    kept.setdefault(quiz_id, {}).setdefault(str(number), {"choice": key, "right": right, "of": len(items)})
    store.write_json(_file(), kept)
    return f"{'✓ right' if right else '✗ not so'}: {item.options[key].strip()}\n  {item.explains[key].strip()}"


def summary() -> str:
    """Right first answers of each quiz; empty before the first one."""
    lines = []
    for quiz_id, answers in sorted(_answers().items()):
        right = sum(bool(entry.get("right")) for entry in answers.values())
        lines.append(f"quiz {quiz_id}: {right} of {len(answers)} right at the first try")
    return "\n".join(lines)


def _answers() -> dict[str, dict[str, Any]]:
    return {quiz_id: answers for quiz_id, answers in store.read_json(_file()).items() if isinstance(answers, dict)}


def _file() -> Path:
    return store.work_folder() / "quizzes.json"
