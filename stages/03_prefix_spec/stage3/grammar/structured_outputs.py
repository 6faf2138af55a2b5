"""What a user may ask of an output's form, and what is wrong with it.

Owns the public ``StructuredOutputsParams`` and its checks, which are those of the front end: whatever can be refused
before a request reaches the engine is refused here. Does not know vocabularies.

It *is* the dictionary that ``SamplingParams(structured_outputs=…)`` takes and that crosses process borders, with names
and checks: ``{"regex": "a+"}`` does as well. The server makes one of ``response_format`` (``stage1.server.sampling``).

vLLM: ``vllm/sampling_params.py`` (``GuidedDecodingParams``), ``v1/engine/processor.py``
(``_validate_structured_output``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stage1.params import SamplingParams
from stage3.grammar.errors import GrammarError
from stage3.grammar.llguidance_backend import json_grammar_text, lark_grammar_text, validate
from stage3.grammar.nfa import Nfa
from stage3.grammar.regex_parse import parse

KINDS = ("choice", "regex", "json", "json_object", "grammar")
MAX_CHOICES = 10_000
MAX_CHOICE_CHARACTERS = 2**16  # of all choices together

_UNSUPPORTED = (  # vLLM's, refused where they ask for anything
    "structural_tag",
    "whitespace_pattern",
    "disable_any_whitespace",
    "disable_additional_properties",
)
_IGNORED = ("disable_fallback", "backend", "_backend")  # there is one backend for each kind


class StructuredOutputsParams(dict[str, Any]):
    """Exactly one constraint on the whole output.

    Args:
        choice: one of these texts, as it is.
        regex: a regular expression, in the syntax of ``regex_parse``.
        json: a JSON schema, as a dict or as text.
        json_object: any JSON object.
        grammar: a context-free grammar, in Lark's notation or in GBNF.
        other: vLLM's further keywords, refused where they ask for what there is not.

    Raises:
        GrammarError: none or several are given, or the one is of the wrong type, not well formed or too large.
    """

    def __init__(
        self,
        choice: Sequence[str] | None = None,
        regex: str | None = None,
        json: Mapping[str, Any] | str | None = None,
        json_object: bool | None = None,
        grammar: str | None = None,
        **other: Any,
    ) -> None:
        given = {"choice": choice, "regex": regex, "json": json, "json_object": json_object, "grammar": grammar}
        super().__init__({name: value for name, value in {**given, **other}.items() if value is not None})
        check(self)

    def __getattr__(self, name: str) -> Any:
        if name not in (*KINDS, *_UNSUPPORTED, *_IGNORED):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return self.get(name)


# The name in vLLM before 0.11, and the keyword that goes with it: ``SamplingParams(guided_decoding=…)``.
GuidedDecodingParams = StructuredOutputsParams


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint in one spelling, so that equal ones are compiled once."""

    kind: str  # one of KINDS
    text: str  # the pattern or grammar; JSON of the schema or the choices


def constraint_of(asked: Mapping[str, Any]) -> Constraint:
    """The one constraint of ``asked``; types and sizes are checked, the syntax is not.

    Raises:
        GrammarError: see ``StructuredOutputsParams``.
    """
    if not isinstance(asked, Mapping):
        raise GrammarError(f"structured_outputs must be an object (a dict), not {type(asked).__name__}")
    for name in asked:
        if name not in (*KINDS, *_UNSUPPORTED, *_IGNORED):
            raise GrammarError(f"structured_outputs has no {str(name)[:40]!r}: known are {', '.join(KINDS)}")
    for name in _UNSUPPORTED:
        if asked.get(name) not in (None, False, ""):
            raise GrammarError(f"structured_outputs.{name} is not supported: leave it out")
    given = [name for name in KINDS if asked.get(name) is not None and asked.get(name) is not False]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "none is given"
        raise GrammarError(f"structured_outputs needs exactly one of {', '.join(KINDS)}; {what}")
    kind = given[0]
    return Constraint(kind, _TEXTS[kind](asked[kind]))


def check(asked: Mapping[str, Any]) -> None:
    """Everything that can be checked without a vocabulary; within a second, whatever is sent.

    Raises:
        GrammarError: see ``StructuredOutputsParams``.
    """
    constraint = constraint_of(asked)
    if constraint.kind == "regex":
        Nfa.of_pattern(parse(constraint.text))
    elif constraint.kind != "choice":
        validate(grammar_text(constraint))


def check_request(params: SamplingParams) -> None:
    """``check`` for a request that has a constraint."""
    if params.structured_outputs is not None:
        check(params.structured_outputs)


def choices_of(constraint: Constraint) -> list[str]:
    """The texts of a ``choice``."""
    texts: list[str] = json.loads(constraint.text)
    return texts


def grammar_text(constraint: Constraint) -> str:
    """A ``json``, ``json_object`` or ``grammar`` as llguidance takes it.

    Raises:
        GrammarError: the schema or grammar is too large, or not supported.
    """
    if constraint.kind == "grammar":
        return lark_grammar_text(constraint.text)
    return json_grammar_text(None if constraint.kind == "json_object" else json.loads(constraint.text))


# --- below: one kind each ---------------------------------------------------------------------------


def _choice_text(choices: Any) -> str:
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not all(isinstance(c, str) for c in choices):
        raise GrammarError("structured_outputs.choice must be a list of strings")
    if not choices:
        raise GrammarError("structured_outputs.choice must not be empty: name at least one text")
    if len(choices) > MAX_CHOICES:
        raise GrammarError(
            f"structured_outputs.choice has {len(choices):,} entries; the limit is {MAX_CHOICES:,}: send fewer"
        )
    if (length := sum(map(len, choices))) > MAX_CHOICE_CHARACTERS:
        raise GrammarError(
            f"structured_outputs.choice has {length:,} characters; the limit is {MAX_CHOICE_CHARACTERS:,}: shorten it"
        )
    for choice in choices:
        _refuse_surrogates("choice", choice)
    return json.dumps(list(choices))


def _refuse_surrogates(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise GrammarError(f"structured_outputs.{name} has half a character at {error.start}: {text!r:.60}") from error


def _regex_text(value: Any) -> str:
    if not isinstance(value, str):
        raise GrammarError(f"structured_outputs.regex must be a text, not {type(value).__name__}")
    return value


def _grammar_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise GrammarError("structured_outputs.grammar must be a text that is not blank")
    _refuse_surrogates("grammar", value)
    return value


def _schema_text(schema: Any) -> str:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise GrammarError(f"structured_outputs.json is no JSON ({error}): send a JSON schema") from error
    if not isinstance(schema, Mapping):
        raise GrammarError(f"structured_outputs.json must be a JSON schema (an object), not {type(schema).__name__}")
    try:
        return json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise GrammarError(f"structured_outputs.json is not made of JSON values: {error}") from error


def _object_text(value: Any) -> str:
    if value is not True:
        raise GrammarError("structured_outputs.json_object must be true, or left out")
    return ""


_TEXTS: dict[str, Callable[[Any], str]] = {
    "choice": _choice_text,
    "regex": _regex_text,
    "json": _schema_text,
    "json_object": _object_text,
    "grammar": _grammar_text,
}
