"""Loading a Python file by its path, fresh each time.

Owns that an edited file is always seen: the source is compiled here, so neither ``sys.modules`` nor the bytecode cache
(which compares whole seconds and lengths) can answer with an older version. Does not know exercises.
"""

from __future__ import annotations

import linecache
import re
import sys
from pathlib import Path
from types import ModuleType


def load_file(path: Path, name: str | None = None) -> ModuleType:
    """Run the file and return it as a module called ``name`` (by default after its folder and file).

    The module stands in ``sys.modules``, where dataclasses and ``inspect`` look for it, in place of an earlier one.

    Raises:
        OSError: the file cannot be read.
        SyntaxError: it is not Python.
        Exception: whatever the file raises.
    """
    path = path.resolve()
    name = name or re.sub(r"\W", "_", f"{path.parent.name}_{path.stem}")
    source = path.read_bytes()
    code = compile(source, str(path), "exec", dont_inherit=True)
    module = ModuleType(name)
    module.__file__ = str(path)
    remember_source(str(path), source.decode("utf-8", errors="replace"))
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def remember_source(filename: str, source: str) -> None:
    """Show this text in tracebacks and to ``inspect.getsource``: an entry without a time is never thought outdated."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
