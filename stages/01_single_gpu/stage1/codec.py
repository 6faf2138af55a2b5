"""The only way in which records cross a process border: msgpack, checked against the record's type.

Owns the wire format. Does not know who sends what to whom. Decoding never runs code that a message names, and anything
that is not the expected record is a ``CodecError``.

A message is the record itself. A record with ``extras`` is a pair, because what they may be is not known to the
record's type but to the codec, which the stage's ``build.py`` made:

    EngineCoreRequest    {"req_id": …, "prompt_ids": …}
    SchedulerOutput      [{"step": …, "new": …}, [{"kind": "grammar", …}, …]]

vLLM: ``v1/serial_utils.py``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec

from stage1.records import Extra

R = TypeVar("R")

# What msgspec raises for values that msgpack cannot hold (integers of more than 64 bits, foreign objects, cycles).
_CANNOT_ENCODE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)
_CANNOT_DECODE = (msgspec.MsgspecError, ValueError, RecursionError, MemoryError)


class CodecError(ValueError):
    """A record that cannot be encoded, or bytes that are not the record that was expected."""


class Codec:
    """Encodes and decodes records; safe to share between threads.

    Args:
        extras: the kinds of ``Extra`` that messages may carry, each with its own ``tag``. Both sides of a border
            need the same.

    Raises:
        ValueError: one of them is not an ``Extra``, or two have the same tag.
    """

    def __init__(self, extras: Sequence[type[Extra]] = ()) -> None:
        for kind in extras:
            if not issubclass(kind, Extra):
                raise ValueError(f"{kind.__name__} is no kind of Extra: derive it from records.Extra, with a tag")
        self._tags = [str(kind.__struct_config__.tag) for kind in extras]
        if len(set(self._tags)) < len(self._tags):
            raise ValueError(f"two kinds of Extra have the same tag: {', '.join(sorted(self._tags))}; rename one")
        self._extra_type: Any = functools.reduce(operator.or_, extras) if extras else Extra  # A | B | …
        self._encoder = msgspec.msgpack.Encoder()
        self._decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}

    def encode(self, record: Any) -> bytes:
        """``record`` as bytes.

        Raises:
            CodecError: it holds something that msgpack has no form for.
        """
        try:
            if not _has_extras(type(record)):
                return self._encoder.encode(record)
            extras = record.extras
            bare = msgspec.structs.replace(record, extras=[]) if extras else record
            return self._encoder.encode((bare, extras))
        except _CANNOT_ENCODE as error:
            raise CodecError(f"cannot encode {type(record).__name__}: {error}") from error

    def decode(self, data: bytes | bytearray | memoryview, kind: type[R]) -> R:
        """The record of type ``kind`` in ``data``; the parameters in it have been checked like new ones.

        Raises:
            CodecError: the bytes are cut, damaged or something else.
        """
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.msgpack.Decoder(self._wire_type(kind))
        try:
            message = decoder.decode(data)
        except _CANNOT_DECODE as error:
            hint = f" (kinds of Extra known here: {', '.join(self._tags) or 'none'})" if "$[1]" in str(error) else ""
            raise CodecError(f"not a {kind.__name__}: {error}{hint}") from error
        if not _has_extras(kind):
            return cast(R, message)
        record, record.extras = message
        return cast(R, record)

    def _wire_type(self, kind: Any) -> Any:
        return tuple[kind, list[self._extra_type]] if _has_extras(kind) else kind  # type: ignore[name-defined]


def _has_extras(kind: type[Any]) -> bool:
    return "extras" in getattr(kind, "__struct_fields__", ())
