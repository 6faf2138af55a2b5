"""The text of generated cells: title, goals, exercise cards, hints.

Owns wording only. What an exercise is called, how long it takes and what it hands over comes from its folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sixfold.builder.master import FrontMatter, Master
from sixfold.builder.places import STAGES

FULL, EMPTY = "●", "○"


def title(master: Master, before: Master | None, after: Master | None) -> str:
    """Cell 0: title, stage map, links, badges."""
    front = master.front
    stages = [
        f"**▶ {n} {name} (you are here)**" if n == front.stage else f"{n} {name}" for n, name in enumerate(STAGES, 1)
    ]
    badges = [f"CPU ~{front.minutes} min", f"GPU ~{front.minutes_gpu} min"]
    if front.minutes_stretch:
        badges.append(f"stretch +{front.minutes_stretch} min")
    badges.append(_counted(front.processes, "process", "es"))
    links = [f"← [{before.id} · {before.front.title}]({before.slug}.ipynb)" if before else ""]
    links.append(f"[{after.id} · {after.front.title}]({after.slug}.ipynb) →" if after else "")
    lines = [f"# {master.id} · {front.title}", " · ".join(stages), " ".join(f"`{badge}`" for badge in badges)]
    lines.append(" | ".join(link for link in links if link))
    return "\n\n".join(line for line in lines if line)


def setup(master: Master) -> str:
    """Cell 1, code: what every notebook starts with."""
    front = master.front
    return (
        "%load_ext sixfold.notebook\n"
        "from sixfold.session import finish, start\n\n"
        f'profile = start("{master.id}", stage={front.stage}, minutes={front.minutes}, minutes_gpu={front.minutes_gpu})'
    )


def goals(front: FrontMatter, exercises: Sequence[Any]) -> str:
    """Cell 2: what the learner will be able to do, what it needs, and two ways through it."""
    core = [exercise for exercise in exercises if exercise.track == "core"]
    stretch = [exercise for exercise in exercises if exercise.track != "core"]
    lines = ["## After this notebook you can", "", *(f"- {goal}" for goal in front.goals), ""]
    lines += ["**Before it:** " + "; ".join(front.prerequisites) + ".", ""]
    lines.append(f"**On your own:** from top to bottom, about {front.minutes} minutes" + _exercise_time(core) + ".")
    if front.minutes_stretch:
        lines.append(f"Stretch tasks take {front.minutes_stretch} more.")
    workshop = ", ".join(exercise.id for exercise in core) or "the worked examples"
    at_home = f" Left for later: {', '.join(exercise.id for exercise in stretch)}." if stretch else ""
    lines += ["", f"**In a workshop:** {workshop}, and the predictions, together.{at_home}"]
    return "\n".join(lines)


def card(exercise: Any) -> str:
    """An exercise's card: what to write, the shapes, what is not tested, where help is."""
    dots = FULL * exercise.difficulty + EMPTY * (5 - exercise.difficulty)
    lines = [f"### Exercise {exercise.id} · {exercise.title}", ""]
    lines += [f"**{exercise.minutes} min** · {dots} · {exercise.track} · in vLLM: `{exercise.vllm}`", ""]
    if exercise.prerequisites:
        lines += [f"Builds on {', '.join(exercise.prerequisites)}.", ""]
    lines += [exercise.contract.strip(), ""]
    if exercise.shapes:
        lines += ["| name | shape | meaning |", "|---|---|---|"]
        lines += ["| " + " | ".join(_shape_cells(row)) + " |" for row in exercise.shapes]
        lines.append("")
    if exercise.not_tested:
        lines += [f"*Not tested:* {exercise.not_tested.strip().rstrip('.')}.", ""]
    lines += [
        f'*Help:* `hint("{exercise.id}")` goes up in three levels, and a solution exists: `solution("{exercise.id}")`. '
        "Until you have solved it, the engine uses the reference.",
        "",
        f"*Report this exercise:* if the statement or the check is wrong or unclear, open an issue “exercise "
        f"{exercise.id}” with the output of `sixfold check {exercise.id}`.",
    ]
    return "\n".join(lines)


def after_exercise(seen: str, hints: Sequence[str]) -> str:
    """What the learner should see, and the hints, folded."""
    lines = ["**What you should see.** " + (seen or "The check passes, and the picture shows your own result."), ""]
    for level, hint in enumerate(hints, 1):
        lines += [f"<details><summary>Hint {level}</summary>", "", hint.strip(), "", "</details>", ""]
    return "\n".join(lines).rstrip()


def split_hints(text: str) -> list[str]:
    """The texts under ``## 1``, ``## 2``, … of a ``hints.md``."""
    hints: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("## "):
            hints.append([])
        elif hints:
            hints[-1].append(line)
    return ["\n".join(lines).strip() for lines in hints]


def _shape_cells(row: Sequence[str]) -> list[str]:
    name, shape, *rest = (cell.replace("|", "\\|") for cell in row)
    return [f"`{name}`", f"`{shape}`" if shape else "", " ".join(rest)]


def _exercise_time(exercises: Sequence[Any]) -> str:
    minutes = sum(exercise.minutes for exercise in exercises)
    return f", {minutes} of them for {_counted(len(exercises), 'exercise')}" if exercises else ""


def _counted(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{'' if count == 1 else plural}"
