"""JSON schemas and context-free grammars, which no finite automaton can follow, through llguidance's parser.

Owns the translation between its interface and ours, and the limits that keep hostile input harmless. Does not know
requests. The parser is Rust: it compiles without Python's lock, and a mask takes it some 50 microseconds. What users
send is tried in another process first (``trial``): recursion without an end would end this one.

What it knows of the vocabulary are our bytes: special tokens have none, so no grammar allows them; ends are the
``Matcher``'s, so the tokenizer's own end-of-text is not used.

vLLM: ``v1/structured_output/backend_guidance.py``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, grammar_from
from llguidance.gbnf_to_lark import gbnf_to_lark

from stage3.grammar.errors import GrammarError
from stage3.grammar.masks import Words, set_bits
from stage3.grammar.trial import Trial
from stage3.grammar.vocabulary import Vocabulary

MAX_TEXT = 2**16  # characters of a schema or a grammar
MAX_GBNF = 2**14  # of one that is translated first, which takes the square of its length: 0.3 s
_MAX_MESSAGE = 300  # characters of llguidance's messages that are passed on
_LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 500_000,  # 10 ms
    "step_lexer_fuel": 200_000,  # 14 ms
    "step_max_items": 50_000,  # 3 ms
    "max_items_in_row": 50_000,
    "max_lexer_states": 20_000,  # some 40 MB
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
TRIAL = Trial(_LIMITS)
# Where only one text can follow, a mask would allow one way to cut it into tokens: that of a tokenizer which we do not
# hand over. The last such line of a grammar counts.
_ALL_TOKENS = '\n%llguidance {"no_forcing": true}\n'
# What only looks like syntax: texts, patterns, comments.
_NO_SYNTAX = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|//[^\n]*')
_GBNF_RULE = re.compile(r"(?m)^\s*[\w-]+\s*::=")
_ANY_OBJECT = {"type": "object"}
_MAX_FACTOR = 10_000  # of all ``multipleOf`` together: the one automaton without a limit has as many states as this


def json_grammar_text(schema: Mapping[str, Any] | bool | None = None) -> str:
    """What ``ParserGrammar`` takes, for a JSON schema; ``None`` = any object.

    Raises:
        GrammarError: the schema is no JSON, or too large.
    """
    try:
        text = json.dumps(_ANY_OBJECT if schema is None else schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise GrammarError(f"the JSON schema is not made of JSON values: {error}") from error
    _check_length("JSON schema", text)
    _check_factors(schema)
    return grammar_from("lark", f"start: %json {text}{_ALL_TOKENS}")


def lark_grammar_text(grammar: str) -> str:
    """What ``ParserGrammar`` takes, for a grammar in Lark's notation, or in GBNF (rules with ``::=``).

    Raises:
        GrammarError: it is too long, or in neither.
    """
    _check_length("grammar", grammar)
    if "%json" in _NO_SYNTAX.sub("", grammar):
        raise GrammarError("the grammar holds %json, which is not supported: send the schema as json instead")
    if not _GBNF_RULE.search(grammar):
        return grammar_from("lark", grammar + _ALL_TOKENS)
    if len(grammar) > MAX_GBNF:
        raise GrammarError(
            f"the grammar has {len(grammar):,} characters; the limit is {MAX_GBNF:,} in GBNF: shorten it, or write it "
            "in Lark's notation"
        )
    try:
        return grammar_from("lark", gbnf_to_lark(grammar) + _ALL_TOKENS)
    except Exception as error:  # the translator raises whatever its parts raise
        raise GrammarError(f"the grammar cannot be read: {_shorten(str(error))}") from error


def validate(text: str) -> None:
    """Check what ``json_grammar_text`` or ``lark_grammar_text`` gave, without a vocabulary.

    Raises:
        GrammarError: it is not well formed, or too complex.
    """
    if fault := TRIAL.find_fault(text):
        raise GrammarError(f"the grammar is not usable: {_shorten(fault)}")


class ParserVocabulary:
    """A vocabulary as llguidance wants it; 0.1 s for 50,000 tokens."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.tokenizer = LLTokenizer(TokenizerWrapper(_Tokens(vocabulary)), slices=LLTokenizer.general_slices())


class ParserGrammar:
    """``Grammar`` of llguidance.

    Raises:
        GrammarError: ``text`` is not well formed, too complex, or no token can begin a match.
    """

    def __init__(self, text: str, vocabulary: ParserVocabulary) -> None:
        self._vocabulary = vocabulary.vocabulary
        self._matcher = LLMatcher(vocabulary.tokenizer, text, log_level=0, limits=LLParserLimits(**_LIMITS))
        _raise_error(self._matcher)
        first = self.start()
        if not first.may_end and not first.mask().any():
            raise GrammarError("no token of this model can begin a match: check the grammar for rules without an end")

    def start(self) -> ParserWalk:
        """See ``Grammar``."""
        return ParserWalk(self._matcher.deep_copy(), self._vocabulary)


class ParserWalk:
    """``Walk`` of llguidance's parser."""

    def __init__(self, matcher: LLMatcher, vocabulary: Vocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary

    @property
    def may_end(self) -> bool:
        """See ``Walk``."""
        return self._matcher.is_accepting()

    def mask(self) -> Words:
        """See ``Walk``.

        Raises:
            GrammarError: the step is too complex.
        """
        if self._matcher.is_stopped() and not self._matcher.is_error():
            return np.zeros(self._vocabulary.num_words, dtype=np.uint32)
        vocabulary = self._vocabulary
        words = np.frombuffer(self._matcher.compute_bitmask(), dtype="<u4").astype(np.uint32)
        _raise_error(self._matcher)
        set_bits(words, [vocabulary.size], False)  # its end-of-text, which is one token more (``_Tokens``)
        return words[: vocabulary.num_words]

    def advance(self, token: int) -> bool:
        """See ``Walk``."""
        # Asked first: the parser never leaves the state of error that a refused or unknown token puts it into.
        if not 0 <= token < self._vocabulary.size or not self._vocabulary.tokens[token]:
            return False
        if self._matcher.validate_tokens([token]) != 1:
            _raise_error(self._matcher)
            return False
        return self._matcher.consume_token(token)

    def rollback(self, count: int) -> None:
        """See ``Walk``."""
        if not self._matcher.rollback(count):
            raise ValueError(f"{count} tokens are to be undone, more than were accepted")


class _Tokens:
    """The interface that llguidance reads a vocabulary through. It wants an end-of-text, so there is one id more."""

    bos_token_id = None
    special_token_ids: list[int]

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._id_of = {text: i for i, text in enumerate(vocabulary.tokens) if text}
        self.tokens = [*vocabulary.tokens, b"<end>"]
        self.eos_token_id = vocabulary.size
        self.special_token_ids = [vocabulary.size]

    def __call__(self, text: bytes) -> list[int]:
        """Tokens of ``text``, byte by byte; nothing depends on them (``_ALL_TOKENS``)."""
        return [self._id_of[bytes([byte])] for byte in text if bytes([byte]) in self._id_of]


def _raise_error(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise GrammarError(f"the grammar is not usable: {_shorten(matcher.get_error())}")


def _shorten(message: str) -> str:
    message = message.strip()
    return message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + " …"


def _check_factors(schema: Mapping[str, Any] | bool | None) -> None:
    """Walk through ``schema``, wherever a keyword may hide, and refuse large or many factors."""
    factors: set[int] = set()
    stack: list[Any] = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            factor = value.get("multipleOf")
            if type(factor) in (int, float):
                digits = "".join(map(str, Decimal(repr(factor)).as_tuple().digits)).rstrip("0")
                factors.add(int(digits[: len(str(_MAX_FACTOR)) + 1] or "1"))
            stack += value.values()
        elif isinstance(value, list | tuple):
            stack += value
    if math.prod(factors) > _MAX_FACTOR:
        raise GrammarError(
            "the JSON schema's multipleOf values are too large together: their product, without zeros at the end, must "
            f"be at most {_MAX_FACTOR:,}"
        )


def _check_length(what: str, text: str) -> None:
    if len(text) > MAX_TEXT:
        raise GrammarError(f"the {what} has {len(text):,} characters; the limit is {MAX_TEXT:,}: shorten it")
