"""The import lines of a stub: those of the engine's module that its definitions need, and a few more.

Owns their order and layout, which are what ``ruff format`` and its import sorting give. Does not know exercises.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterator, Mapping

WIDTH = 120
OWN = ("sixfold", "stage")  # packages that stand in the last section begin so


def import_lines(source: str, used: Collection[str], extra: Mapping[str, Collection[str]]) -> str:
    """The imports of ``source`` that bind a name of ``used``, and ``from module import names`` for ``extra``."""
    module = ast.parse(source)
    always = [(n, False) for n in module.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    typing_only = [
        (n, True)
        for block in module.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for n in block.body
        if isinstance(n, (ast.Import, ast.ImportFrom))
    ]
    kept = [(needed, guarded) for n, guarded in (*always, *typing_only) if (needed := _needed(n, used))]
    guarded_lines = _section([n for n, guarded in kept if guarded], indent="    ")
    plain = [n for n, guarded in kept if not guarded]
    plain += [_from(name, names) for name, names in extra.items()]
    if guarded_lines and not any(isinstance(n, ast.ImportFrom) and _binds(n, "TYPE_CHECKING") for n in plain):
        plain.append(_from("typing", ["TYPE_CHECKING"]))
    sections = [_section([n for n in _merged(plain) if _rank(n) == rank]) for rank in range(4)]
    if guarded_lines:
        sections.append("if TYPE_CHECKING:\n" + guarded_lines)
    return "\n\n".join(section for section in sections if section)


def _needed(node: ast.Import | ast.ImportFrom, used: Collection[str]) -> ast.Import | ast.ImportFrom | None:
    """``node`` with the names that are used; ``None`` without one."""
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return node
    names = [alias for alias in node.names if (alias.asname or alias.name.partition(".")[0]) in used]
    if not names:
        return None
    return ast.Import(names) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, names, node.level)


def _from(module: str, names: Collection[str]) -> ast.ImportFrom:
    return ast.ImportFrom(module, [ast.alias(name) for name in names], 0)


def _binds(node: ast.ImportFrom, name: str) -> bool:
    return any((alias.asname or alias.name) == name for alias in node.names)


def _merged(nodes: list[ast.Import | ast.ImportFrom]) -> Iterator[ast.Import | ast.ImportFrom]:
    """One ``from`` line a module."""
    of_module: dict[str, ast.ImportFrom] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            yield node
        elif (node.module or "") in of_module:
            of_module[node.module or ""].names += node.names
        else:
            of_module[node.module or ""] = ast.ImportFrom(node.module, list(node.names), node.level)
    yield from of_module.values()


def _rank(node: ast.Import | ast.ImportFrom) -> int:
    """The section of an import: __future__, standard library, others, our own."""
    package = (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
    if package == "__future__":
        return 0
    return 3 if package.startswith(OWN) else 1 if package in sys.stdlib_module_names else 2


def _section(nodes: list[ast.Import | ast.ImportFrom], indent: str = "") -> str:
    """Sorted as ruff sorts: plain imports first, then by module."""
    nodes = sorted(
        nodes,
        key=lambda n: (
            isinstance(n, ast.ImportFrom),
            n.module or "" if isinstance(n, ast.ImportFrom) else n.names[0].name,
        ),
    )
    return "\n".join(_line(node, indent) for node in nodes)


def _line(node: ast.Import | ast.ImportFrom, indent: str) -> str:
    node.names.sort(key=lambda alias: _name_order(alias.name))
    line = indent + ast.unparse(node)
    if len(line) <= WIDTH:
        return line
    head = line.partition(" import ")[0] + " import ("
    return "\n".join([head, *(f"{indent}    {ast.unparse(alias)}," for alias in node.names), indent + ")"])


def _name_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name
