"""``sixfold model``: print where the embedded model lies, as an ordinary Hugging Face folder.

Any tool that wants a tokenizer or a checkpoint can be given the path: ``--tokenizer "$(sixfold model)"``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser; the command has no options of its own."""
    return argparse.ArgumentParser(
        prog="sixfold model",
        description="Print the folder of the embedded model; the first use converts it, which takes some seconds.",
        allow_abbrev=False,
    )


def run(options: argparse.Namespace) -> int:
    """Convert the model unless that has been done, and print its folder."""
    from stage1.model.embedded import embedded_folder

    print(embedded_folder())
    return 0
