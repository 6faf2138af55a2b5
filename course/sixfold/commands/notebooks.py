"""``sixfold notebooks``: build the notebooks from their masters, or check that they are what the masters say.

vLLM: none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sixfold.builder.build import build_all, course_sources, faults
from sixfold.builder.places import repository


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; ``argv`` changes nothing here."""
    parser = argparse.ArgumentParser(
        prog="sixfold notebooks",
        description="Build the notebooks from course/masters/, or check them. Masters are described in "
        "docs/contributing.md.",
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=("build", "check"), help="write all builds, or only say what is wrong")
    return parser


def run(options: argparse.Namespace) -> int:
    """Build, or check; 1 when the check found something."""
    root = repository()
    sources = course_sources(root)
    if options.action == "check":
        found = faults(root, sources)
        print("\n".join(found) if found else "notebooks: every master keeps the form, and notebooks/ is up to date")
        return 1 if found else 0
    changed = build_all(root, sources)
    for path in changed:
        print(("wrote " if path.exists() else "removed ") + path.relative_to(root).as_posix())
    if not changed:
        print("notebooks: nothing has changed")
    return 0
