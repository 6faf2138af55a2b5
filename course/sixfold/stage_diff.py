"""What a stage adds to the ones before it: new files, files that take another's place, and what is reused by import.

Owns the comparison and its text. Reads sources only; no stage is imported.

vLLM: none.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_LINES = {1: 8000}  # code lines that a stage may add; the first one is everything
MAX_LINES_LATER = 4500
MAX_BUILD_DIFF = 120  # lines of the wiring's difference that are shown
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Module:
    """A stage's source file."""

    stage: int
    path: str  # inside the package: model/rope.py
    text: str
    num_lines: int  # that hold code: no blank line, comment or docstring
    summary: str  # its docstring's first line
    names: tuple[str, ...]  # public classes and functions
    imports: tuple[tuple[str, str], ...]  # (module, name) from other stages


def package_folder(stage: int) -> Path:
    """The folder of ``stageN``.

    Raises:
        ValueError: the stage is not here.
    """
    spec = importlib.util.find_spec(f"stage{stage}")
    if spec is None or spec.origin is None:
        raise ValueError(f"stage {stage} is not here")
    return Path(spec.origin).parent


def read_modules(stage: int, folder: Path) -> list[Module]:
    """Every source file of a stage's package, by path."""
    return [
        read_module(stage, path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    ]


def read_module(stage: int, path: str, text: str) -> Module:
    """One source file, taken apart."""
    tree = ast.parse(text, path)
    summary = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
    definitions = (node for node in tree.body if isinstance(node, DEFINITIONS))
    names = tuple(node.name for node in definitions if not node.name.startswith("_"))
    return Module(stage, path, text, code_lines(text, tree), summary, names, tuple(_other_stages(stage, tree)))


def code_lines(text: str, tree: ast.Module) -> int:
    """How many lines hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {n for token in tokens if token.type not in _NO_CODE for n in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def describe(stage: int, before: Sequence[Module], after: Sequence[Module]) -> list[str]:
    """What ``stage``, whose modules are ``after``, adds to the earlier modules ``before``; one line each."""
    earlier = {module.path: module for module in before}  # of several, the latest stage's
    new = [module for module in after if module.path not in earlier]
    replaced = [module for module in after if module.path in earlier and module.path != "__init__.py"]
    total, cap = sum(module.num_lines for module in after), MAX_LINES.get(stage, MAX_LINES_LATER)
    lines = [f"Stage {stage}: {len(after)} files, {total:,} lines of code (at most {cap:,})"]
    lines += ["", f"New files ({len(new)})", *_listed(new)]
    if replaced:
        lines += ["", f"Files that take an earlier one's place ({len(replaced)})"]
        for module in replaced:
            old = earlier[module.path]
            lines += [*_listed([module]), f"      before: stage{old.stage}/{old.path}, {old.num_lines} lines; "
                      f"{_change(old, module)}"]  # fmt: skip
    lines += ["", *_reused(after)]
    if stage > 1 and "build.py" in earlier:
        lines += ["", *_wiring(earlier["build.py"], next((m for m in after if m.path == "build.py"), None))]
    return lines


def too_large(stage: int, after: Sequence[Module]) -> str:
    """Why the stage is more than a reader can take in, or ""."""
    total, cap = sum(module.num_lines for module in after), MAX_LINES.get(stage, MAX_LINES_LATER)
    return f"stage {stage} adds {total:,} lines of code; at most {cap:,} may come at once" if total > cap else ""


def _listed(modules: Sequence[Module]) -> list[str]:
    width = max((len(module.path) for module in modules), default=0)
    return [f"  {module.path:{width}}  {module.num_lines:4}  {module.summary}" for module in modules]


def _change(old: Module, new: Module) -> str:
    added = [name for name in new.names if name not in old.names]
    kept = [name for name in new.names if name in old.names]
    taken = [name for module, name in new.imports if module == f"stage{old.stage}.{_dotted(old.path)}"]
    parts = [f"{word} {', '.join(names)}" for word, names in (("adds", added), ("rewrites", kept), ("keeps", taken))
             if names]  # fmt: skip
    return "; ".join(parts) or "no public name in common"


def _reused(after: Sequence[Module]) -> list[str]:
    used: dict[str, set[str]] = {}
    for module in after:
        for source, name in module.imports:
            used.setdefault(source, set()).add(name)
    if not used:
        return ["Reused by import: nothing, it is the first stage"]
    return [f"Reused by import ({len(used)} modules)"] + [
        f"  {source}: {', '.join(sorted(names))}" for source, names in sorted(used.items())
    ]


def _wiring(old: Module, new: Module | None) -> list[str]:
    if new is None:
        return ["The wiring, build.py, is the earlier stage's"]
    difference = difflib.unified_diff(
        old.text.splitlines(), new.text.splitlines(), f"stage{old.stage}/build.py", f"stage{new.stage}/build.py",
        lineterm="", n=1,
    )  # fmt: skip
    lines = list(difference)
    more = len(lines) - MAX_BUILD_DIFF
    return ["The wiring, side by side:", *lines[:MAX_BUILD_DIFF], *([f"… {more} more lines"] if more > 0 else [])]


def _other_stages(stage: int, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        package = node.module.partition(".")[0]
        if package.startswith("stage") and package != f"stage{stage}":
            yield from ((node.module, alias.name) for alias in node.names)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
