"""Flags derived from a stage's settings, so that each setting is written once, in its configuration class.

Owns how a field becomes a flag and how its text is read. Does not know any particular setting.

vLLM: ``vllm/engine/arg_utils.py`` (``get_kwargs``), ``vllm/utils/argparse_utils.py``.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable
from fractions import Fraction
from typing import Any

from sixfold.dotted import GIVEN, allow_keys, merged
from stage1.config import FieldType, field_type

# A prefix in the namespace keeps settings apart from a command's own options of the same name.
PREFIX = "setting_"

_HUMAN_INT = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)([kmgtKMGT]?)")
_EXPONENT = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def human_int(text: str) -> int:
    """``8192``, ``8k`` = 8,000, ``8K`` = 8,192, ``1.5m`` = 1,500,000: small letters are decimal, capitals binary.

    Raises:
        ValueError: not of that form, or not a whole number.
    """
    match = _HUMAN_INT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a whole number such as 8192, 8k (8,000) or 8K (8,192)")
    number, suffix = match.groups()
    value = Fraction(number) * (1024 if suffix.isupper() else 1000) ** _EXPONENT[suffix.lower()]
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number: it stands for {float(value)}")
    return int(value)


def finite_float(text: str) -> float:
    """A number that is neither infinite nor NaN."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


def add_settings(
    parser: argparse.ArgumentParser, configs: Iterable[type[Any]], leave_out: Collection[str] = ()
) -> None:
    """Add a flag for every field of ``configs`` whose name is not in ``leave_out``, a group a class."""
    for config in configs:
        summary = (config.__doc__ or "").strip().splitlines()
        group = parser.add_argument_group(config.__name__, summary[0] if summary else None)
        for field in dataclasses.fields(config):
            if field.name not in leave_out:
                _add_flag(group, field)
                if field.metadata.get("json"):
                    allow_keys(parser, [field.name])


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the user gave, by field name; those left to their defaults are not in it.

    Raises:
        UsageError: single keys of a setting were given besides a text that is no JSON object.
    """
    given = {name.removeprefix(PREFIX): value for name, value in vars(options).items() if name.startswith(PREFIX)}
    return merged(given, getattr(options, GIVEN, ()))


def _add_flag(group: argparse._ArgumentGroup, field: dataclasses.Field[Any]) -> None:
    kind = field_type(field)
    flag = "--" + field.name.replace("_", "-")
    text = str(field.metadata.get("help", "")).replace("%", "%%")
    if field.metadata.get("json"):
        text += f"; or key by key: {flag}.KEY VALUE"
    if field.default is not None:
        text += f" (default: {str(field.default).replace('%', '%%')})"
    keywords: dict[str, Any] = {"dest": PREFIX + field.name, "default": argparse.SUPPRESS, "help": text}
    if kind.base is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **keywords)
    elif kind.choices:
        group.add_argument(flag, choices=kind.choices, **keywords)
    else:
        metavar = "JSON" if field.metadata.get("json") else _METAVARS[kind.base]
        group.add_argument(flag, type=parse_as(kind), metavar=metavar, **keywords)


_METAVARS = {str: "TEXT", int: "N", float: "X"}
_CONVERT: dict[type, Callable[[str], Any]] = {str: str, int: human_int, float: finite_float}


def parse_as(kind: FieldType) -> Callable[[str], Any]:
    """The function that reads a value of ``kind``; where None is allowed, the word ``none`` stands for it."""
    convert = _CONVERT[kind.base]

    def parse(text: str) -> Any:
        if kind.optional and kind.base is not str and text.lower() == "none":
            return None
        try:
            return convert(text)
        except ValueError as error:
            # argparse shows this message; of a plain ValueError it would drop the words.
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
