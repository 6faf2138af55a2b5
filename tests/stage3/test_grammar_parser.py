"""JSON schemas and grammars through llguidance: the same rules for masks, ends and steps back as for our automaton."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from stage1.model.byte_tokenizer import EOS, ByteTokenizer
from stage3.grammar.compiler import GrammarCompiler
from stage3.grammar.errors import GrammarError
from stage3.grammar.llguidance_backend import ParserGrammar, ParserVocabulary, json_grammar_text, lark_grammar_text
from stage3.grammar.masks import unpack
from stage3.grammar.matcher import Matcher
from stage3.grammar.structured_outputs import Constraint, constraint_of
from stage3.grammar.vocabulary import Vocabulary, load_vocabulary

BYTES = load_vocabulary(ByteTokenizer(), 300)
PIECES = Vocabulary(
    [b"{", b"}", b'{"', b'"', b'":', b"a", b"aa", b'a":', b" ", b"1", b"12", b",", b"-", b"null", b"true}", b"",
     b"\xc3", b"\xa9", "é".encode(), b"</s>", b"x", b"\n"]
)  # fmt: skip
END = 15  # has no text, like every special token
SCHEMA = {
    "type": "object", "properties": {"a": {"type": ["integer", "null", "string"]}}, "required": ["a"],
    "additionalProperties": False,
}  # fmt: skip
TEXTS = {
    "schema": json_grammar_text(SCHEMA),
    "object": json_grammar_text(),
    "lark": lark_grammar_text('start: "a" start "x" | /[1a]{2,3}/ | "é"'),
    "forced": json_grammar_text({"const": "aaaax1"}),
    "overruled": lark_grammar_text('%llguidance {"no_forcing": false}\nstart: "aaax"'),
    "gbnf forced": lark_grammar_text('root ::= "aaaa1"'),
    "gbnf": lark_grammar_text('root ::= "{" item ("," item)* "}"\nitem ::= "1" | "a"'),
}


@pytest.fixture(scope="module", params=list(TEXTS))
def grammar(request: pytest.FixtureRequest) -> ParserGrammar:
    return ParserGrammar(TEXTS[request.param], ParserVocabulary(PIECES))


def fresh(grammar: ParserGrammar) -> Matcher:
    return Matcher(grammar.start(), frozenset({END}))


def allowed(matcher: Matcher, vocabulary: Vocabulary = PIECES) -> list[int]:
    words = np.full(vocabulary.num_words, 0xFFFFFFFF, dtype=np.uint32)
    matcher.allowed_mask(words)
    return np.flatnonzero(unpack(words, vocabulary.num_words * 32)).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_masks_are_what_trying_every_token_gives(grammar: ParserGrammar, seed: int) -> None:
    matcher, chooser = fresh(grammar), random.Random(seed)
    for _ in range(20):
        tried = []
        for token in range(PIECES.num_words * 32):
            if matcher.accept([token]):
                matcher.rollback(1)
                tried.append(token)
        assert allowed(matcher) == tried
        assert (END in tried) == matcher.is_complete
        following = [token for token in tried if token != END]
        if not following:
            break
        assert matcher.accept([chooser.choice(following)]) == 1


@pytest.mark.parametrize("seed", range(6))
def test_rollback_equals_replay(grammar: ParserGrammar, seed: int) -> None:
    matcher, chooser, history = fresh(grammar), random.Random(seed), []
    for _ in range(12):
        for _ in range(chooser.randrange(5)):
            if matcher.has_ended or not (ids := allowed(matcher)):
                break
            history.append(chooser.choice(ids))
            assert matcher.accept(history[-1:]) == 1
        count = chooser.randrange(len(history) + 1)
        matcher.rollback(count)
        history = history[: len(history) - count]
        replayed = fresh(grammar)
        assert replayed.accept(history) == len(history)
        assert (allowed(replayed), replayed.is_complete) == (allowed(matcher), matcher.is_complete)


def test_a_refused_token_changes_nothing(grammar: ParserGrammar) -> None:
    matcher = fresh(grammar)
    first = allowed(matcher)
    for token in range(PIECES.size):
        if token not in first:
            assert matcher.accept([token]) == 0
    assert matcher.accept([first[0], 19, first[0]]) == 1  # </s> as text is never legal in these
    matcher.rollback(1)
    assert allowed(matcher) == first
    with pytest.raises(ValueError, match="more than were accepted"):
        matcher.rollback(1)


def test_outputs_share_nothing(grammar: ParserGrammar) -> None:
    one, other = fresh(grammar), fresh(grammar)
    before = allowed(other)
    one.accept(allowed(one)[:1])
    assert allowed(other) == before


@pytest.mark.parametrize("seed", range(5))
def test_random_walks_give_valid_json(seed: int) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 3}, "n": {"type": "integer", "minimum": 3, "maximum": 40},
            "kind": {"enum": ["é", None, 1.5]}, "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        },
        "required": ["name", "n", "kind", "list"], "additionalProperties": False,
    }  # fmt: skip
    matcher = Matcher(ParserGrammar(json_grammar_text(schema), ParserVocabulary(BYTES)).start(), frozenset({EOS, 9}))
    chooser, output = random.Random(seed), b""
    while not matcher.has_ended and len(output) < 4000:
        ids = allowed(matcher, BYTES)
        assert not {256, 258, 299, 10_000} & set(ids)  # special, or without a meaning
        assert (EOS in ids) == (9 in ids) == matcher.is_complete  # 9 is a tab, and a stop token here
        solid = [i for i in ids if i not in (9, 10, 13, 32)]
        token = chooser.choice(solid or ids)
        assert matcher.accept([token]) == 1
        output += BYTES.tokens[token] if token != 9 else b""
    value = json.loads(output)
    assert set(value) == {"name", "n", "kind", "list"}
    assert 3 <= value["n"] <= 40
    assert value["kind"] in ("é", None, 1.5)
    assert len(value["name"]) <= 3


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("json", json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})),
        Constraint("grammar", "start: start"),
        Constraint("grammar", 'start: "\u0436"'),
        Constraint("grammar", "start: A\nA: /(.*a.{30}){2}/ & /(.*b.{30}){2}/ & ~/.*c.{20}/"),
        Constraint("regex", "ж"),
        Constraint("choice", '["\u0436"]'),
    ],
    ids=range(6),
)
def test_what_cannot_begin_or_is_too_complex_is_refused_when_compiled(constraint: Constraint) -> None:
    compiler = GrammarCompiler(PIECES)
    with pytest.raises(GrammarError, match=r"no token of this model|not usable"):
        compiler.compile(constraint)
    compiler.shutdown()


HOSTILE: list[dict[str, Any]] = [
    {"json": {"type": "object", "properties": {f"p{i}": {"type": "number"} for i in range(600)}}},
    {"json": {"anyOf": [{"type": "object", "properties": {f"p{i}": {"type": "string"}}} for i in range(300)]}},
    {"json": {"enum": [f"v{i}" for i in range(5000)]}},
    {"json": {"type": "string", "pattern": "((a{0,200}){0,200}){0,200}"}},
    {"json": {"type": "string", "minLength": 100_000, "maxLength": 1_000_000}},
    {"json": {"type": "array", "items": {"type": "array", "minItems": 1000}, "minItems": 10**9}},
    {"json": {"type": "integer", "multipleOf": 9973}},
    {"grammar": "start: a0\n" + "".join(f"a{i}: a{i + 1} a{i + 1} | a{i + 1}\n" for i in range(300)) + 'a300: "x"'},
    {"grammar": 'start: start start start | "x" | "xx" | ""'},
    {"grammar": 'start: "a"{1000000000}'},
    {"grammar": "start: /(.*a.{300}){20}/"},
    {"choice": [f"the option with the number {i}" for i in range(3_000)]},
]


@pytest.mark.parametrize("asked", HOSTILE, ids=range(len(HOSTILE)))
def test_large_and_hostile_constraints_are_compiled_or_refused(asked: dict[str, Any]) -> None:
    """The limits are llguidance's own but for ``multipleOf``; without that one, a large factor takes minutes."""
    compiler = GrammarCompiler(BYTES)
    try:
        matcher = Matcher(compiler.compile(constraint_of(asked)).start(), frozenset({EOS}))
        for _ in range(6):
            ids = allowed(matcher, BYTES)
            assert ids
            matcher.accept([ids[-1]])
    except GrammarError:
        return
    finally:
        compiler.shutdown()


def test_compiled_grammars_are_shared_and_bounded() -> None:
    compiler = GrammarCompiler(PIECES, max_grammars=16)
    first = compiler.submit(Constraint("choice", '["a"]'))
    assert compiler.submit(Constraint("choice", '["a"]')) is first
    futures = [
        compiler.submit(constraint_of({"json": {"const": 1 + 11 * (i % 2), "title": str(i)}})) for i in range(1000)
    ]
    assert len(compiler) == 16
    assert all(future.result(timeout=60) for future in futures)
    assert compiler.submit(Constraint("choice", '["a"]')) is not first
    broken = compiler.submit(Constraint("regex", "("))
    assert isinstance(broken.exception(timeout=60), GrammarError)
    assert compiler.submit(Constraint("regex", "(")) is broken  # refused once is enough
    compiler.shutdown()
