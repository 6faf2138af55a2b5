"""The viewer as one self-contained HTML page: styles, scripts and a trace inside, nothing from outside.

Owns how modules become one script, and how data that somebody else wrote gets into the page without becoming markup or
code. Does not know what a trace says. The drawings are those of the demo server's page, taken from stage 1's files.

vLLM: no counterpart.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from importlib.resources import files

# In the order in which they need each other: a module may import only from those before it.
SHARED = ("trace.js", "draw.js", "mask.js", "life.js", "step_table.js")
OWN = ("events.js", "replay.js", "lanes.js", "main.js")

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const|let) (\w+))", re.MULTILINE)


def make_page(text: str = "", name: str = "") -> str:
    """The page; it opens with the trace ``text`` (JSON lines), called ``name``. Without one it waits for a file."""
    shared, own = files("stage1.server").joinpath("page"), files("sixfold.viewer")
    modules = [(file, shared.joinpath(file).read_text("utf-8")) for file in SHARED]
    modules += [(file, own.joinpath(file).read_text("utf-8")) for file in OWN]
    script = bundle(modules)
    style = shared.joinpath("style.css").read_text("utf-8") + own.joinpath("viewer.css").read_text("utf-8")
    # The hashes allow these two and nothing else: a mistake in escaping could still not run anything.
    policy = f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; base-uri 'none'"
    values = {
        "policy": policy,
        "icon": shared.joinpath("icon.svg").read_text("utf-8"),
        "style": style,
        "script": script,
        "data": embedded({"name": name, "text": text}),
    }
    template = own.joinpath("page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def embedded(value: object) -> str:
    """``value`` as JSON that can stand in a ``script`` element: no ``<`` of it is left to end or begin one."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def bundle(modules: Iterable[tuple[str, str]]) -> str:
    """Modules (file name, source) as one classic script, because pages opened from a file cannot load modules.

    Each becomes a function that is called at once and returns what the module exports.
    """
    parts = ['"use strict";']
    for file, source in modules:
        names = ", ".join(_EXPORT.findall(source))
        source = _IMPORT.sub(lambda match: f"const {match[1]} = {_variable(match[2])};", source)
        parts.append(f"const {_variable(file)} = (() => {{\n{_EXPORT.sub('', source)}\nreturn {{ {names} }};\n}})();")
    return "\n".join(parts)


def digest(text: str) -> str:
    """What a content security policy calls an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _variable(file: str) -> str:
    return "module_" + file.removesuffix(".js")
