"""The shape of the code, checked: who imports whom, how long things get, what nobody does.

Each rule is a function over a tree of sources, ``{path: text}``, that returns its violations; so each is also tried on
a small tree with the violation planted.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_FILE_LINES = 300
MAX_BUILD_LINES = 90
MAX_FUNCTION_LINES = 50
TEXT = {".py", ".md", ".toml", ".txt", ".html", ".css", ".js", ".ipynb", ".json", ".cfg", ".yml", ".yaml", ""}
Tree = dict[str, str]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_tree() -> Tree:
    folders = [ROOT / name for name in ("stages", "course", "tests", "docs", "notebooks", ".ci")]
    paths = [path for folder in folders for path in folder.rglob("*")] + list(ROOT.glob("*"))
    kept = (
        p for p in paths if p.is_file() and p.suffix in TEXT and not p.is_symlink() and "__pycache__" not in p.parts
    )
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in kept}


def python(tree: Tree, *folders: str) -> Iterator[tuple[str, ast.Module]]:
    for path, text in tree.items():
        if path.endswith(".py") and path.startswith(folders or ""):
            yield path, ast.parse(text, path)


def imported(node: ast.AST) -> Iterator[str]:
    """``import a.b`` → a.b; ``from a import b`` → a.b, which may be a module or a name in one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def import_direction(tree: Tree) -> list[str]:
    """A stage imports from itself and from earlier stages, never from the course; its exercises may."""
    found = []
    for path, module in python(tree, "stages/"):
        match = re.match(r"stages/0(\d)_", path)
        if match is None:
            found.append(f"{path}: not in a stage's folder")
            continue
        for name in (name for node in ast.walk(module) for name in imported(node)):
            other = re.match(r"stage(\d)(\.|$)", name)
            course = name.split(".")[0] == "sixfold" and "/exercises/" not in path
            if course or (other and other[1] > match[1]):
                found.append(f"{path}: imports {name}")
    return found


def relative_imports(tree: Tree) -> list[str]:
    """An import names the module in full, so that it says which stage a thing comes from."""
    return [
        f"{path}:{node.lineno}: relative import"
        for path, module in python(tree, "stages/", "course/")
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is imported: not those in functions, nor under TYPE_CHECKING."""
    for statement in body:
        if isinstance(statement, FUNCTIONS):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from at_import(statement.orelse)
            continue
        yield statement
        for field in ("body", "orelse", "finalbody"):
            yield from at_import(getattr(statement, field, []))
        for handler in getattr(statement, "handlers", []):
            yield from at_import(handler.body)


def import_cycles(tree: Tree) -> list[str]:
    """No module needs, to be imported, a module that needs it."""
    names = {}
    for path, module in python(tree, "stages/", "course/"):
        parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
        names[".".join(parts[2:] if parts[0] == "stages" else parts[1:])] = module
    needs = {}
    for name, module in names.items():
        wanted = [target for node in at_import(module.body) for target in imported(node)]
        needs[name] = {t if t in names else t.rpartition(".")[0] for t in wanted} & set(names) - {name}
    # Take away what needs nothing that is left, over and over: what stays is in a cycle, or needs one.
    while ready := [name for name, wanted in needs.items() if not wanted & set(needs)]:
        for name in ready:
            del needs[name]
    return [f"{name}: in, or in need of, an import cycle through {sorted(w & set(needs))}" for name, w in needs.items()]


def file_lengths(tree: Tree) -> list[str]:
    """Files are short, and a stage's wiring fits one screen."""
    found = []
    for path, _ in python(tree):
        limit = MAX_BUILD_LINES if re.search(r"/stage\d/build\.py$", path) else MAX_FILE_LINES
        if (lines := len(tree[path].splitlines())) > limit:
            found.append(f"{path}: {lines} lines, more than {limit}")
    return found


def code_lines(text: str, function: Function) -> int:
    """Lines of a function that hold code: no blank line, comment or docstring."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(function):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines & set(range(function.lineno, (function.end_lineno or 0) + 1)))


def function_lengths(tree: Tree) -> list[str]:
    """Functions are short."""
    return [
        f"{path}:{node.lineno}: {node.name} has more than {MAX_FUNCTION_LINES} lines of code"
        for path, module in python(tree)
        for node in ast.walk(module)
        if isinstance(node, FUNCTIONS)
        and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
        and code_lines(tree[path], node) > MAX_FUNCTION_LINES
    ]


def global_statements(tree: Tree) -> list[str]:
    """No function rebinds a module's name."""
    return [
        f"{path}:{node.lineno}: global"
        for path, module in python(tree)
        for node in ast.walk(module)
        if isinstance(node, ast.Global)
    ]


def undocumented(tree: Tree) -> list[str]:
    """Every public module, class, function and method says what it is."""
    found = []

    def visit(path: str, owner: ast.Module | ast.ClassDef) -> None:
        if ast.get_docstring(owner) is None:
            found.append(f"{path}: {getattr(owner, 'name', 'the module')} has no docstring")
        for node in owner.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                visit(path, node)
            elif isinstance(node, FUNCTIONS) and not node.name.startswith("_") and ast.get_docstring(node) is None:
                found.append(f"{path}:{node.lineno}: {node.name} has no docstring")

    for path, module in python(tree, "stages/", "course/"):
        visit(path, module)
    return found


def environment_access(tree: Tree) -> list[str]:
    """Environment variables are read and set in one module, and where processes start."""
    found = []
    for path, module in python(tree, "stages/"):
        if path.endswith("/stage1/environment.py") or Path(path).stem in {"worker", "launch"}:
            continue
        for node in ast.walk(module):
            names = [ast.unparse(node)] if isinstance(node, ast.Attribute) else list(imported(node))
            if any(re.fullmatch(r"os\.(environb?|getenvb?|putenv|unsetenv)", name) for name in names):
                found.append(f"{path}: {names[0]}")
    return found


def unsafe_loading(tree: Tree) -> list[str]:
    """Nothing that arrives is executed: no pickle, in any of its clothes."""
    modules = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
    found = []
    for path, module in python(tree, "stages/", "course/"):
        for node in ast.walk(module):
            names = [ast.unparse(node)] if isinstance(node, ast.Attribute) else list(imported(node))
            bad = [n for n in names if n.split(".")[0] in modules or n == "torch.load" or n.endswith("_pyobj")]
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
                bad.append("allow_pickle")
            found += [f"{path}: {name}" for name in bad]
    return found


def packages_under_tests(tree: Tree) -> list[str]:
    """No ``__init__.py`` under tests: names would clash with the stages' packages."""
    return [path for path in tree if path.startswith("tests/") and path.endswith("/__init__.py")]


def private_places(tree: Tree) -> list[str]:
    """No path of somebody's machine, and no package registry by its host."""
    pattern = re.compile(
        r"(?<![\w.~}])/(?:work|root|home|Users|opt)/\w+|\bpypi\.org\b|pythonhosted\.org|\bregistry\.npmjs\."
    )
    return [
        f"{path}: {match[0]}"
        for path, text in tree.items()
        if path != "tests/test_architecture.py" and (match := pattern.search(text))
    ]


RULES: list[Callable[[Tree], list[str]]] = [
    import_direction, relative_imports, import_cycles, file_lengths, function_lengths, global_statements, undocumented,
    environment_access, unsafe_loading, packages_under_tests, private_places,
]  # fmt: skip

S1, S2 = "stages/01_single_gpu/stage1/", "stages/02_paged_kv/stage2/"
LONG = "def f():\n" + "    a = 1\n" * 50  # 51 lines of code
PLANTED: list[tuple[Callable[[Tree], list[str]], Tree]] = [
    (import_direction, {S1 + "a.py": "from stage2.pool import Pool"}),
    (import_direction, {S1 + "a.py": "def f():\n    import stage2"}),
    (import_direction, {S2 + "a.py": "from sixfold.flags import human_int"}),
    (import_direction, {S1 + "a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stage3.spec"}),
    (relative_imports, {S1 + "a.py": "from .b import c"}),
    (import_cycles, {S1 + "a.py": "from stage1.b import f", S1 + "b.py": "import stage1.a"}),
    (
        import_cycles,
        {S1 + "m/__init__.py": "from stage1.b import f", S1 + "b.py": "try:\n  from stage1.m import x\nfinally: pass"},
    ),
    (file_lengths, {S1 + "a.py": "a = 1\n" * 301}),
    (file_lengths, {S1 + "build.py": "a = 1\n" * 91}),
    (function_lengths, {S1 + "a.py": LONG}),
    (function_lengths, {S1 + "a.py": "class A:\n" + "".join(f"    {line}\n" for line in LONG.splitlines())}),
    (global_statements, {S1 + "a.py": "def f():\n    global x\n    x = 1"}),
    (undocumented, {S1 + "a.py": "a = 1"}),
    (undocumented, {S1 + "a.py": '"""A."""\ndef f(): ...'}),
    (undocumented, {S1 + "a.py": '"""A."""\nclass A:\n    """A."""\n    def f(self): ...'}),
    (environment_access, {S1 + "a.py": "import os\nx = os.environ['A']"}),
    (environment_access, {S1 + "a.py": "from os import getenv"}),
    (environment_access, {S2 + "environment.py": "import os\nos.putenv('a', 'b')"}),
    (unsafe_loading, {S1 + "a.py": "import pickle"}),
    (unsafe_loading, {S1 + "a.py": "import torch\ntorch.load('x')"}),
    (unsafe_loading, {S1 + "a.py": "from torch import load"}),
    (unsafe_loading, {S1 + "a.py": "socket.recv_pyobj()"}),
    (unsafe_loading, {S1 + "a.py": "np.load('x', allow_pickle=True)"}),
    (packages_under_tests, {"tests/stage1/__init__.py": ""}),
    (private_places, {"README.md": "see /home/me/model"}),
]
CLEAN: Tree = {
    S1 + "environment.py": '"""A."""\nimport os\nx = os.environ',
    S1 + "a.py": '"""A."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from stage1.b import f',
    S1 + "b.py": '"""A."""\nimport stage1.a\nfrom stage1 import environment\ndef _f():\n    a.load()',
    S1 + "c.py": '"""A."""\ndef f():\n    """One.\n\n    Two.\n    """\n' + "    # why\n\n    a = 1\n" * 40,
    S2 + "worker.py": '"""A."""\nimport os\nfrom stage1.a import x\nos.environ["A"] = "b"',
    "tests/stage1/test_a.py": "import stage2\nx = f'{tmp_path}/home/x'",
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_tree_keeps_rule(rule: Callable[[Tree], list[str]]) -> None:
    assert rule(read_tree()) == []


@pytest.mark.parametrize(("rule", "tree"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_planted_violation_is_caught(rule: Callable[[Tree], list[str]], tree: Tree) -> None:
    assert len(rule(tree)) > 0


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_clean_tree_passes(rule: Callable[[Tree], list[str]]) -> None:
    assert rule(CLEAN) == []


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, _ in PLANTED} == set(RULES)
    assert len(read_tree()) > 40  # the real tree was found
