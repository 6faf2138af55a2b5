"""What a learner is handed: the engine's own source, with the bodies blanked that are to be written.

Owns the text of stubs and solutions. Both are cut out of the engine's module, so nothing is copied by hand and filling
in a stub only changes the blanked bodies. Does not run any of it.
"""

from __future__ import annotations

import ast
import importlib.util
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path

from sixfold.exercises.catalog import Exercise
from sixfold.exercises.imports import import_lines

Function = ast.FunctionDef | ast.AsyncFunctionDef
WIDTH = 100  # of the header's lines


class NotAttempted(NotImplementedError):  # noqa: N818 (a state of the work, not an error)
    """A blank that nobody has filled in yet."""

    def __init__(self, exercise_id: str) -> None:
        super().__init__(f"exercise {exercise_id}: this body is still to be written")
        self.exercise_id = exercise_id


def make_stub(exercise: Exercise) -> str:
    """The file that a learner completes.

    Raises:
        ValueError: ``meta.toml`` names something that the module does not have.
    """
    return _assemble(exercise, _header(exercise), _blanked(exercise), stub=True)


def make_solution(exercise: Exercise) -> str:
    """The same file as the engine has it: a complete answer, which can be saved in the stub's place."""
    source = module_source(exercise)
    header = f"Exercise {exercise.id}: {exercise.title}.\n\nThe engine's own version, from {exercise.module}."
    return _assemble(exercise, f'"""{header}\n"""', source, stub=False)


def module_source(exercise: Exercise) -> str:
    """The source of the engine's module that holds the symbol."""
    spec = importlib.util.find_spec(exercise.module)
    if spec is None or spec.origin is None:
        raise ValueError(f"exercise {exercise.id}: there is no module {exercise.module}")
    return Path(spec.origin).read_text(encoding="utf-8")


def blank_lines(exercise: Exercise) -> set[int]:
    """The lines (from 1) of the module that a stub leaves out."""
    source = module_source(exercise)
    return {line for first, last in _bodies(exercise, ast.parse(source)) for line in range(first, last + 1)}


def _assemble(exercise: Exercise, header: str, source: str, stub: bool) -> str:
    """Header, imports, and the wanted definitions of ``source`` in their order."""
    original = ast.parse(module_source(exercise))
    wanted = [exercise.name, *exercise.keep]
    defined = {name: node for node in original.body for name in defined_names(node)}
    if missing := [name for name in wanted if name not in defined]:
        raise ValueError(f"exercise {exercise.id}: {exercise.module} does not define {missing[0]}")
    # Names come from the original, so that what the answer needs has been imported already.
    used = {n.id for name in wanted for n in ast.walk(defined[name]) if isinstance(n, ast.Name)}
    others = sorted(name for name in used & defined.keys() if name not in wanted)
    extra = {exercise.module: others} if others else {}
    if stub:
        extra = {**extra, "sixfold.exercises.stub": ["NotAttempted"]}
    lines = source.splitlines()
    parts = [_segment(lines, node) for node in ast.parse(source).body if set(defined_names(node)) & set(wanted)]
    imports = import_lines(module_source(exercise), used, extra)
    gaps = [("\n\n\n" if "def " in part or "class " in part else "\n\n") + part for part in parts]
    return header + "\n\n" + imports + "".join(gaps) + "\n"


def _header(exercise: Exercise) -> str:
    blanks = ", ".join(f"`{blank}`" for blank in exercise.blanks)
    contract = textwrap.fill(" ".join(exercise.contract.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
    lines = [
        f"Exercise {exercise.id}: {exercise.title}.",
        "",
        contract,
        "",
        f"To write: {blanks}.",
        f'To check it: check("{exercise.id}") in a notebook, `sixfold check {exercise.id}` in a terminal.',
        f'When stuck:  hint("{exercise.id}") in a notebook, `sixfold hint {exercise.id}` in a terminal.',
    ]
    return '"""' + "\n".join(lines).replace("\\", "\\\\") + '\n"""'


def _blanked(exercise: Exercise) -> str:
    """The module's source with ``raise NotAttempted(…)`` for the bodies to be written."""
    source = module_source(exercise)
    lines = source.splitlines()
    for first, last in sorted(_bodies(exercise, ast.parse(source)), reverse=True):
        text = next(
            lines[i] for i in range(first - 1, last) if lines[i].strip() and not lines[i].strip().startswith("#")
        )
        indent = text[: len(text) - len(text.lstrip())]
        lines[first - 1 : last] = [f'{indent}raise NotAttempted("{exercise.id}")']
    return "\n".join(lines) + "\n"


def _bodies(exercise: Exercise, module: ast.Module) -> Iterator[tuple[int, int]]:
    """First and last line of every body to be written; its docstring stays."""
    functions = dict(_functions(module))
    for blank in exercise.blanks:
        function = functions.get(blank) or functions.get(f"{exercise.name}.{blank}")
        if function is None:
            raise ValueError(f"exercise {exercise.id}: {exercise.module} has no function {blank} to blank")
        first = function.body[0]
        has_docstring = ast.get_docstring(function, clean=False) is not None
        begin = (first.end_lineno or first.lineno) + 1 if has_docstring else _first_line(first)
        end = function.end_lineno or begin
        if begin > end or begin <= function.lineno:
            raise ValueError(f"exercise {exercise.id}: {blank} has no body of its own lines")
        yield begin, end


def _functions(module: ast.Module) -> Iterator[tuple[str, Function]]:
    """``f`` and ``Class.method`` with their nodes."""
    for node in module.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{item.name}", item) for item in node.body if isinstance(item, Function))


def defined_names(node: ast.stmt) -> Collection[str]:
    """The names that a statement of a module defines; imports do not count."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _segment(lines: list[str], node: ast.stmt) -> str:
    """A definition with its decorators and the comment right above it."""
    first = _first_line(node) - 1
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first : node.end_lineno])


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
