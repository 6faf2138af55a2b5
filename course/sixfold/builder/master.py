"""A master's text, taken apart: front matter, and blocks in order.

Owns the form that ``docs/contributing.md`` describes. Does not know what a directive expands to, nor notebooks' JSON.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_origin, get_type_hints

# The places of the template that must occur, in this order; a directive's place is its own name.
TEMPLATE = ("pain", "predict", "idea", "example", "exercise", "together", "ladder", "measure", "break", "vllm", "quiz",
            "summary")  # fmt: skip
INSTRUCTOR = "instructor"
_DIRECTIVES = ("exercise", "vllm")
_NAMES = {*TEMPLATE, INSTRUCTOR} - set(_DIRECTIVES)
_MARKER = re.compile(r"<!--\s*(\w+)(?:\s+(\S+))?\s*-->\s*")
_FENCE = re.compile(r"(`{3,}|~{3,})\s*(.*?)\s*")
_FRONT = re.compile(r"\+\+\+\n(.*?\n)\+\+\+\n", re.DOTALL)


class MasterError(ValueError):
    """A master breaks the form; the message begins with file and line."""


@dataclass(frozen=True)
class FrontMatter:
    """What a notebook says about itself. Minutes are for the core path, exercises included."""

    title: str
    stage: int
    minutes: int
    minutes_gpu: int
    minutes_stretch: int
    processes: int  # at the same time, the kernel included
    goals: list[str]
    prerequisites: list[str]
    vllm: list[str]  # modules of the name map


@dataclass(frozen=True)
class Block:
    """One cell as it is written, or one directive."""

    kind: Literal["text", "code", "exercise", "vllm"]
    name: str  # its place in the template, or ""
    source: str  # of a directive: the text that follows it
    line: int
    exercise: str = ""  # the id, of an exercise


@dataclass(frozen=True)
class Master:
    """A parsed master. ``slug`` is the file's name without its ending, ``id`` the part before the first ``_``."""

    slug: str
    front: FrontMatter
    blocks: list[Block]

    @property
    def id(self) -> str:
        """``01a`` of ``01a_model``."""
        return self.slug.partition("_")[0]

    @property
    def exercises(self) -> list[str]:
        """The ids of its exercises, in order."""
        return [block.exercise for block in self.blocks if block.kind == "exercise"]


def read_master(path: Path) -> Master:
    """The master in ``path``.

    Raises:
        MasterError: it breaks the form.
    """
    return parse_master(path.stem, path.read_text(encoding="utf-8"))


def parse_master(slug: str, text: str) -> Master:
    """The master ``slug`` with this ``text``.

    Raises:
        MasterError: front matter or a marker is wrong.
    """
    match = _FRONT.match(text)
    if match is None:
        raise MasterError(f"{slug}.md:1: a master begins with TOML between two lines +++")
    try:
        values = tomllib.loads(match[1])
    except tomllib.TOMLDecodeError as error:
        raise MasterError(f"{slug}.md:1: front matter: {error}") from None
    first_line = text[: match.end()].count("\n") + 1
    return Master(slug, _front_matter(slug, values), _Blocks(slug).read(text[match.end() :], first_line))


def template_faults(master: Master) -> list[str]:
    """What is missing of the template, or out of its order; empty when it is kept."""
    first: dict[str, int] = {}
    for position, block in enumerate(master.blocks):
        name = block.kind if block.kind in _DIRECTIVES else block.name
        first.setdefault(name, position)
    faults = [f"{master.slug}.md: there is no `{name}`" for name in TEMPLATE if name not in first]
    present = [name for name in TEMPLATE if name in first]
    for before, after in itertools.pairwise(present):
        if first[after] < first[before]:
            line = master.blocks[first[after]].line
            faults.append(f"{master.slug}.md:{line}: the first `{after}` comes before the first `{before}`")
    return faults


def _front_matter(slug: str, values: dict[str, object]) -> FrontMatter:
    hints = get_type_hints(FrontMatter)
    wanted = {field.name: get_origin(hints[field.name]) or hints[field.name] for field in fields(FrontMatter)}
    for name in wanted.keys() ^ values.keys():
        problem = "is missing" if name in wanted else f"is unknown; there are {', '.join(wanted)}"
        raise MasterError(f"{slug}.md:1: front matter: {name} {problem}")
    for name, kind in wanted.items():
        value = values[name]
        entries = value if isinstance(value, list) else []
        if type(value) is not kind or not all(isinstance(entry, str) for entry in entries):
            raise MasterError(f"{slug}.md:1: front matter: {name} is {value!r}; it must be {hints[name]}")
    return FrontMatter(**values)  # type: ignore[arg-type]  # just checked


class _Blocks:
    """Reads lines into blocks. ``_open`` is the block that takes the next line of text."""

    def __init__(self, slug: str) -> None:
        self._slug = slug
        self._blocks: list[Block] = []
        self._open = Block("text", "", "", 0)
        self._lines: list[str] = []

    def read(self, text: str, line: int) -> list[Block]:
        """All blocks of ``text``, whose first line has the number ``line``."""
        self._begin(Block("text", "", "", line))
        fence = ""  # the fence that is open, whose lines are taken as they are
        for number, content in enumerate(text.splitlines(), line):
            opened = _FENCE.fullmatch(content)
            if fence:
                closes = opened is not None and opened[1].startswith(fence) and not opened[2]
                fence = self._in_fence(content, fence, closes, number)
            elif opened is not None:
                fence = opened[1]
                self._fence(content, opened[2], number)
            elif marker := _MARKER.fullmatch(content):
                self._begin(self._marked(marker[1], marker[2] or "", number))
            else:
                self._lines.append(content)
        if fence:
            raise MasterError(f"{self._slug}.md:{self._open.line}: a fence is never closed")
        self._end()
        return self._blocks

    def _in_fence(self, content: str, fence: str, closes: bool, number: int) -> str:
        if closes and self._open.kind == "code":
            self._begin(Block("text", "", "", number + 1))
        else:
            self._lines.append(content)
        return "" if closes else fence

    def _fence(self, content: str, info: str, number: int) -> None:
        language, _, name = info.partition(" ")
        if language != "python":
            self._lines.append(content)
            return
        self._check_name(name, number)
        self._begin(Block("code", name, "", number))

    def _marked(self, word: str, argument: str, number: int) -> Block:
        if word == INSTRUCTOR and not argument:
            return Block("text", INSTRUCTOR, "", number)
        if word == "cell":
            self._check_name(argument, number)
            return Block("text", argument, "", number)
        if word == "exercise" and argument:
            return Block("exercise", "", "", number, argument)
        if word == "vllm" and not argument:
            return Block("vllm", "", "", number)
        raise MasterError(
            f"{self._slug}.md:{number}: unknown marker `{word} {argument}`; there are cell [NAME], exercise ID, vllm "
            "and instructor"
        )

    def _check_name(self, name: str, number: int) -> None:
        if name and name not in _NAMES:
            raise MasterError(f"{self._slug}.md:{number}: unknown name {name}; there are {', '.join(sorted(_NAMES))}")

    def _begin(self, block: Block) -> None:
        self._end()
        self._open = block

    def _end(self) -> None:
        source = "\n".join(self._lines).strip("\n").rstrip()
        self._lines = []
        block = self._open
        if source or block.kind in _DIRECTIVES:
            self._blocks.append(Block(block.kind, block.name, source, block.line, block.exercise))
        elif block.name or block.kind == "code":
            raise MasterError(f"{self._slug}.md:{block.line}: this cell is empty")
