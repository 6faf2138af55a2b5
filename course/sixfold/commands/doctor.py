"""``sixfold doctor``: what of this machine is ready, and how to mend what is not.

Owns the table and the exit code; the checks are in ``sixfold.checks``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sixfold.checks import CHECKS, Check, run_check

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
PIPED_WIDTH = 120  # columns, where no terminal says how many it has


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; the command has no options of its own."""
    return argparse.ArgumentParser(
        prog="sixfold doctor",
        description="Check this machine, and say how to mend what is missing.",
        allow_abbrev=False,
    )


def run(options: argparse.Namespace) -> int:
    """Run every check and print a table; 1 when something must be mended."""
    checks = [run_check(name, function) for name, function in CHECKS.items()]
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
    console.print(as_table(checks))
    failed = [check.name for check in checks if check.status == "fail"]
    console.print(f"Mend first: {', '.join(failed)}." if failed else "Ready.", markup=False)
    return 1 if failed else 0


def as_table(checks: Sequence[Check]) -> Table:
    """One row a check, with the mend below what was found."""
    table = Table(box=None, pad_edge=False)
    for title in ("check", "", "found"):
        table.add_column(title, overflow="fold")
    for check in checks:
        found = Text(check.found)
        if check.mend:
            found.append(f"\n→ {check.mend}", style="bold")
        table.add_row(Text(check.name), Text(check.status, style=STYLES[check.status]), found)
    return table
