"""``sixfold trace``: look at a trace in a browser, or check it.

Owns the file's way into the page. The page is ``sixfold.viewer``, the rules are ``stage1.trace.invariants``.

vLLM: no counterpart.
"""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from sixfold.errors import UsageError
from sixfold.viewer.page import make_page
from stage1.trace.invariants import check_trace
from stage1.trace.reader import TraceError, read_trace

MAX_BYTES = 256 << 20  # of a trace; a browser takes a page of that size, slowly


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; its flags do not depend on ``argv``."""
    parser = argparse.ArgumentParser(
        prog="sixfold trace",
        usage="sixfold trace FILE [--out PAGE.html] [--no-open] [--check]",
        description="Look at a trace, step by step, in a browser: one page that needs no server and no network.",
        allow_abbrev=False,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what `sixfold generate … --trace FILE` wrote")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="where the page is written (default: FILE with .html)")
    parser.add_argument("--no-open", action="store_true", help="write the page, but open no browser")
    parser.add_argument(
        "--check", action="store_true", help="only check the trace: print what is wrong and exit with 1"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Write the page and open it, or check the trace."""
    return check(options.file) if options.check else show(options)


def check(path: Path) -> int:
    """Print every violation; 1 if there are any.

    Raises:
        TraceError: the file is not a trace.
    """
    trace = read_trace(path)
    violations = check_trace(trace)
    if trace.truncated:
        violations.insert(0, "the last line is cut off")
    for violation in violations:
        print(violation)
    if not violations:
        print(f"{path}: every rule is kept (steps: {len(trace.steps):,}, requests: {len(trace.requests):,})")
    return 1 if violations else 0


def show(options: argparse.Namespace) -> int:
    """Write the page beside the trace, or where ``--out`` says, and open it.

    A file with faults is shown, too: the page names them, and what can be drawn is drawn.

    Raises:
        UsageError: the file is too large, or the page would replace it.
        OSError: it cannot be read, or the page cannot be written.
    """
    path: Path = options.file
    page: Path = options.out or path.with_suffix(".html")
    size = path.stat().st_size
    if size > MAX_BYTES:
        limit = f"the limit is {MAX_BYTES >> 20} MiB"
        raise UsageError(f"{path} has {size >> 20:,} MiB; {limit}: trace fewer requests, or cut it (`head -n …`)")
    if page.resolve() == path.resolve():
        raise UsageError(f"the page would replace the trace {path}: name another place with --out")
    text = path.read_bytes().decode("utf-8", errors="replace")
    page.write_text(make_page(text, path.name), encoding="utf-8")
    print(page)
    try:
        read_trace(path)
    except TraceError as error:
        print(f"sixfold trace: {error}; the page shows the rest", file=sys.stderr)
    if not options.no_open and not webbrowser.open(page.resolve().as_uri()):
        print(f"sixfold trace: no browser could be started; open {page.resolve().as_uri()}", file=sys.stderr)
    return 0
