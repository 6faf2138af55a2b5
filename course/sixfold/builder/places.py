"""Where masters, built notebooks and documents lie in a checkout.

Owns paths only. A wheel holds no masters, so everything here needs the repository.
"""

from __future__ import annotations

from pathlib import Path

from sixfold.errors import UsageError

STAGES = ("single_gpu", "paged_kv", "prefix_spec", "multi_gpu", "distributed", "benchmark")


def repository() -> Path:
    """The checkout's root.

    Raises:
        UsageError: the package was installed without its repository.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / "course" / "masters").is_dir():
        raise UsageError("there are no masters here: run this in a checkout of the repository, installed with `make`")
    return root


def masters(root: Path) -> list[Path]:
    """The masters in the order in which they are read."""
    return sorted((root / "course" / "masters").glob("*.md"))
