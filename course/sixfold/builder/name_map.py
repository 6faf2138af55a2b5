"""``docs/name-map.md``, read: what of ours has which counterpart in vLLM.

Owns the table's form: four columns – our module, its symbol, vLLM's file, its symbol – and a fifth for remarks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

COMMIT = "42172ad"  # of August 2025; every path in the map is meant at this commit
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class NameRow:
    """One row of the map. ``path`` begins with ``vllm/``; it is empty where vLLM has no counterpart."""

    module: str  # stage1.scheduler
    symbols: tuple[str, ...]  # StaticScheduler; empty = the whole module
    path: str
    theirs: str  # as written, Markdown
    remark: str


def read_name_map(text: str) -> list[NameRow]:
    """The rows of every table in ``text`` whose first cell is a module's name in backquotes."""
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 5 or not re.fullmatch(r"`[\w.]+`", cells[0]):
            continue
        path = _CODE.findall(cells[2])
        rows.append(NameRow(cells[0].strip("`"), tuple(_CODE.findall(cells[1])), "".join(path[:1]), *cells[3:]))
    return rows


def vllm_table(rows: Sequence[NameRow], modules: Sequence[str]) -> str:
    """The Markdown table of ``modules``, in their order.

    Raises:
        ValueError: the map has no row for one of them.
    """
    lines = [f"At commit `{COMMIT}`:", "", "| here | there | what differs |", "|---|---|---|"]
    for module in modules:
        found = [row for row in rows if row.module == module]
        if not found:
            raise ValueError(f"docs/name-map.md has no row for {module}: add one, or mend `vllm` in the front matter")
        for row in found:
            ours = ", ".join(f"`{module.partition('.')[2]}.{symbol}`" for symbol in row.symbols) or f"`{module}`"
            theirs = f"`{row.path}`" + (f": {row.theirs}" if row.theirs else "") if row.path else "–"
            lines.append(f"| {ours} | {theirs} | {row.remark} |")
    return "\n".join(lines)
