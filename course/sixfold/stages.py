"""Which stages are here, and their public face.

Owns the choice of a stage. Does not know what a stage holds beyond ``LLM``, ``SamplingParams``, ``serve`` and
``build.CONFIGS``; importing one loads torch, asking whether it is there does not.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from sixfold.errors import UsageError

NUMBERS = range(1, 7)


def available() -> list[int]:
    """The stages that have an engine, in order."""
    return [number for number in NUMBERS if _has(f"stage{number}") and _has(f"stage{number}.build")]


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def add_stage_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--stage N``."""
    here = available()
    highest = f"the highest one here, {here[-1]}" if here else "none is here"
    parser.add_argument("--stage", type=int, metavar="N", help=f"which stage's engine runs (default: {highest})")


def chosen_stage(argv: Sequence[str]) -> int:
    """The stage that ``argv`` names, or the highest one.

    A command's flags depend on the stage, so it is read before the command's own parser exists.

    Raises:
        UsageError: no such stage, or no stage at all.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--stage", type=int)
    try:
        asked = first.parse_known_args(argv)[0].stage
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    here = available()
    if not here:
        raise UsageError("no stage can be imported: install the project (`make demo`), or set PYTHONPATH to its stages")
    if asked is None:
        return here[-1]
    if asked not in here:
        raise UsageError(f"there is no stage {asked} here; present: {', '.join(map(str, here))}")
    return int(asked)


def stage_module(number: int) -> ModuleType:
    """``stageN``, with its public face ``LLM``, ``SamplingParams`` and ``serve``."""
    return importlib.import_module(f"stage{number}")


def engine_configs(number: int) -> tuple[type[Any], ...]:
    """The configuration classes of the stage's engine; their fields are the keywords of its ``LLM``."""
    configs: tuple[type[Any], ...] = importlib.import_module(f"stage{number}.build").CONFIGS
    return configs


def server_configs(number: int) -> tuple[type[Any], ...]:
    """The engine's classes and the server's own, which all stages share."""
    from stage1.server.config import ServerConfig

    return (*engine_configs(number), ServerConfig)
