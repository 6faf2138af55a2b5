"""``sixfold serve``: start a stage's HTTP server.

Owns only the flags; the server itself is the stage's ``serve``.

vLLM: ``vllm/entrypoints/cli/serve.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from sixfold.errors import UsageError
from sixfold.flags import PREFIX, add_settings, given_settings
from sixfold.learner import add_mine_flag, load_mine
from sixfold.stages import add_stage_flag, chosen_stage, server_configs, stage_module
from stage1.config import Settings


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser with the flags of the stage that ``argv`` names."""
    parser = argparse.ArgumentParser(
        prog="sixfold serve",
        usage="sixfold serve [MODEL] [--stage N] [--port N] [options]",
        description="Start a stage's HTTP server.",
        allow_abbrev=False,
    )
    parser.add_argument("model_tag", nargs="?", metavar="MODEL", help="the same as --model")
    add_stage_flag(parser)
    add_mine_flag(parser)
    add_settings(parser, server_configs(chosen_stage(argv)))
    return parser


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    settings = given_settings(with_model(options))
    number = chosen_stage([] if options.stage is None else ["--stage", str(options.stage)])
    mine: dict[str, Any] = {}
    if options.mine:
        loaded = load_mine(number, settings.get("attention_backend", "auto"))
        mine = {"parts": loaded.parts, "owners": loaded.owners}
    code = stage_module(number).serve(Settings.from_keywords(server_configs(number), settings), **mine)
    return int(code or 0)


def with_model(options: argparse.Namespace) -> argparse.Namespace:
    """``options`` with the positional model as the setting ``model``.

    Raises:
        UsageError: two different models were named.
    """
    changed = argparse.Namespace(**vars(options))
    if options.model_tag is not None:
        named = getattr(options, PREFIX + "model", options.model_tag)
        if named != options.model_tag:
            raise UsageError(f"two models are named, {options.model_tag!r} and --model {named!r}: leave one out")
        setattr(changed, PREFIX + "model", options.model_tag)
    return changed
