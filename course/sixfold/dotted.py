"""Dotted flags: ``--setting.key value`` gives one key of a setting whose text is a JSON object.

``--speculative-config.method ngram`` is ``--speculative-config '{"method": "ngram"}'``, and each further key is a
further flag. A parser cannot list keys that it does not know, so those that a command line holds are added to it before
it reads that line: values, ``=`` and what is missing are then argparse's business, as with every other flag.

Owns what a dotted flag looks like, how its value is read and how keys are put together. Does not know any setting.

vLLM: ``vllm/utils/argparse_utils.py`` (``FlexibleArgumentParser.parse_args``).
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sixfold.errors import UsageError

GIVEN = "dotted_flags"  # in the namespace: every ``Dotted`` of the command line, in order
_TAKES_JSON = "json_settings"  # in the parser's defaults: names of settings that have keys

_LOOKS_DOTTED = re.compile(r"--[^\s=.]+\.[^\s=]*")
_DOTTED = re.compile(r"--[^\s=.]+(\.[^\s=.]+)+")


class Dotted(NamedTuple):
    """One dotted flag."""

    setting: str
    keys: tuple[str, ...]  # from the outermost to the innermost
    value: Any

    @property
    def flag(self) -> str:
        """How it is written."""
        return _flag(".".join((self.setting, *self.keys)))


def allow_keys(parser: argparse.ArgumentParser, settings: Collection[str]) -> None:
    """Let ``settings`` be given key by key, too."""
    parser.set_defaults(**{_TAKES_JSON: (*json_settings(parser), *settings)})


def json_settings(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The settings of ``parser`` that can be given key by key."""
    names: tuple[str, ...] = parser.get_default(_TAKES_JSON) or ()
    return names


def add_dotted(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    """Add the dotted flags that ``argv`` holds; what is no key of a JSON setting ends the program, by its name."""
    known = json_settings(parser)
    found = (argument.partition("=")[0] for argument in argv if argument.startswith("--"))
    for flag in dict.fromkeys(flag for flag in found if _LOOKS_DOTTED.fullmatch(flag)):
        setting, *keys = flag.removeprefix("--").replace("-", "_").split(".")
        if setting not in known or not _DOTTED.fullmatch(flag):
            takers = ", ".join(f"{_flag(name)}.KEY" for name in known)
            parser.error(f"unrecognized arguments: {flag}" + (f" (flags with keys: {takers})" if takers else ""))
        parser.add_argument(
            flag,
            dest=GIVEN,
            action="append",
            default=argparse.SUPPRESS,
            type=functools.partial(_read, setting, tuple(keys)),
            metavar="VALUE",
            help=argparse.SUPPRESS,
        )


def json_value(text: str) -> Any:
    """``text`` read as JSON where it is JSON, else ``text`` itself: ``4`` is a number, ``ngram`` a string."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def merged(settings: Mapping[str, Any], given: Sequence[Dotted]) -> dict[str, Any]:
    """``settings`` with the keys ``given`` merged over their JSON; of two values for one key, the later one counts.

    Raises:
        UsageError: a setting has keys and a text that is no JSON object.
    """
    objects: dict[str, Any] = {}
    for dotted in given:
        name = dotted.setting
        if name not in objects:
            objects[name] = json_value(settings[name]) if name in settings else {}
            if not isinstance(objects[name], dict):
                raise UsageError(
                    f"{_flag(name)} is {settings[name]!r:.200}, no JSON object, so {dotted.flag} has nothing to be "
                    "merged into: leave one of them out"
                )
        value = dotted.value
        for key in reversed(dotted.keys):
            value = {key: value}
        objects[name] = _over(objects[name], value)
    return {**settings, **{name: json.dumps(found) for name, found in objects.items()}}


# --- below: the parts ---------------------------------------------------------------------------------


def _read(setting: str, keys: tuple[str, ...], text: str) -> Dotted:
    return Dotted(setting, keys, json_value(text))


def _over(below: Any, above: Any) -> Any:
    """Two objects key by key; of anything else, ``above``."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: _over(below.get(key), value) for key, value in above.items()}}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _refuse(constant: str) -> Any:
    # Python's reader takes NaN and Infinity, which JSON does not have.
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number
