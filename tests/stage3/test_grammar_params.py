"""What a user may ask of an output's form: one constraint, checked before the engine sees it."""

from __future__ import annotations

from typing import Any

import pytest
from llguidance import grammar_from

import stage3
from stage1.codec import Codec
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest
from stage3.grammar.errors import GrammarError
from stage3.grammar.structured_outputs import (
    KINDS,
    MAX_CHOICES,
    Constraint,
    StructuredOutputsParams,
    check,
    check_request,
    choices_of,
    constraint_of,
)
from stage3.grammar.trial import Trial

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GOOD: list[dict[str, Any]] = [
    {"choice": ["Positive", "Negative"]}, {"choice": ("a",)}, {"choice": [""]}, {"regex": r"\d{3}-\d{4}"},
    {"json": SCHEMA}, {"json": '{"type": "integer"}'}, {"json": {}}, {"json_object": True},
    {"grammar": 'start: "a" | "b"'}, {"grammar": 'root ::= "a" | "b"'},
    {"grammar": 'start: "<x> ::= y"'}, {"grammar": 'start: "%json" | /%json/  // %json'}, {"regex": " "}, {"regex": ""},
    {"regex": "a", "backend": "xgrammar", "whitespace_pattern": None},
    {"regex": "a", "json": None, "json_object": False, "disable_fallback": True, "disable_any_whitespace": False},
]  # fmt: skip


def deep(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


BAD: list[tuple[Any, str]] = [
    ({}, "exactly one of choice, regex, json, json_object, grammar; none is given"),
    ({"regex": "a", "choice": ["a"]}, "choice and regex are given"),
    ({"regexp": "a"}, "has no 'regexp': known are"),
    ([], "must be an object"),
    ({"structural_tag": "{}"}, "structural_tag is not supported"),
    ({"regex": "a", "whitespace_pattern": " "}, "whitespace_pattern is not supported"),
    ({"choice": []}, "choice must not be empty"),
    ({"choice": "ab"}, "choice must be a list of strings"),
    ({"choice": ["a", 1]}, "choice must be a list of strings"),
    ({"choice": ["a"] * (MAX_CHOICES + 1)}, "10,001 entries; the limit is 10,000"),
    ({"choice": ["a" * 60_000] * 2}, "120,000 characters; the limit is 65,536"),
    ({"regex": "foo**"}, "two quantifiers in a row"),
    ({"regex": "("}, "never closed"),
    ({"regex": "["}, "a ] is needed"),
    ({"regex": 3}, "must be a text"),
    ({"choice": ["a\ud800", "b"]}, "half a character"),
    ({"regex": "((a{0,200}){0,200}){0,200}"}, "needs 8,080,402 states; the limit is 20,000"),
    ({"regex": "(" * 99 + "a{99999}" + "){99999}" * 99}, "a number of 13 digits or more states"),
    ({"json": [1]}, "must be a JSON schema"),
    ({"json": 3}, "must be a JSON schema"),
    ({"json": "{"}, "is no JSON"),
    ({"json": {"a": {1, 2}}}, "not made of JSON values"),
    ({"json": {"a": float("nan")}}, "not made of JSON values"),
    ({"json": {"type": "nope"}}, "nope"),
    ({"json": {"type": "object", "properties": 3}}, "properties"),
    ({"json": {"$ref": "#/$defs/b"}}, "not usable"),
    ({"json": {"$ref": "http://localhost/x.json"}}, "not usable"),
    ({"json": {"type": "string", "pattern": "("}}, "regex parse error"),
    ({"json": deep(120)}, "recursion limit"),
    ({"json": deep(3000)}, "not made of JSON values"),
    ({"json": {"enum": ["a" * 70_000]}}, "the limit is 65,536"),
    ({"json": {"type": "integer", "multipleOf": 999_983}}, "multipleOf values are too large"),
    (
        {"json": {"allOf": [{"$comment": [{"multipleOf": n}]} for n in (97.1, 89, 2)]}},
        "multipleOf values are too large",
    ),
    ({"json": {"type": "integer", "multipleOf": 10**400 + 1}}, "multipleOf values are too large"),
    ({"json": {"allOf": [{"multipleOf": True}, {"multipleOf": [{}]}]}}, "not usable"),
    ({"json_object": 1}, "json_object must be true"),
    ({"grammar": ""}, "not blank"),
    ({"grammar": "start: foo"}, "unknown name"),
    ({"grammar": 'foo: "a"'}, "no start rule"),
    ({"grammar": "root ::= foo"}, "'foo' not found"),
    ({"grammar": "start: " + "(" * 5000 + '"a"' + ")" * 5000}, "nested"),
    ({"grammar": 'start: %json {"multipleOf": 999983}'}, "send the schema as json"),
    ({"grammar": 'start: "' + "a" * 70_000 + '"'}, "the limit is 65,536"),
    ({"grammar": "root ::= r0\n" + "\n".join(f'r{i} ::= r{i + 1} "b"' for i in range(3000))}, "16,384 in GBNF"),
    ({"json": {"$ref": "#"}}, "no text matches it"),
    ({"json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}}, "no text"),
    ({"grammar": "start: start"}, "no text matches it"),
    ({"grammar": 'start: <|im_end|> "a"'}, "not usable"),
]


def chain(rule: str, count: int) -> str:
    """``count`` rules, each in terms of the next."""
    return "start: r0\n" + "\n".join(f"r{i}: {rule.format(i + 1)}" for i in range(count)) + f'\nr{count}: "a"'


def references(count: int) -> dict[str, Any]:
    """A schema whose items are as deep."""
    definitions: dict[str, Any] = {f"{i:x}": {"items": {"$ref": f"#/$defs/{i + 1:x}"}} for i in range(count)}
    return {"$defs": {**definitions, f"{count:x}": {}}, "$ref": "#/$defs/0"}


# What ends, or keeps busy, whoever reads it.
DEADLY: list[dict[str, Any]] = [
    {"grammar": chain("r{}", 4000)},
    {"json": references(1200)},
    {"json": {"type": "string", "allOf": [{"pattern": f".*{chr(97 + i % 26)}.{{{i}}}"} for i in range(40)]}},
]


@pytest.mark.parametrize("asked", DEADLY, ids=range(len(DEADLY)))
def test_what_a_parser_dies_of_is_refused_and_the_next_is_read(asked: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="too much time or memory"):
        check(asked)
    check({"grammar": chain("r{}", 100)})
    check({"json": references(20)})


def test_a_trial_ends_with_whoever_asks() -> None:
    trial = Trial({})
    trial.find_fault("nothing at all")
    assert trial._process is None
    trial.hold()
    trial.find_fault("nothing at all")
    process = trial._process
    assert process is not None
    trial.find_fault("nor here")
    assert trial._process is process, "one process for all grammars of an engine"
    trial.release()
    trial.close()
    assert process.poll() is not None


def test_after_an_interrupt_nobody_gets_an_older_answer(monkeypatch) -> None:
    trial = Trial({})
    trial.hold()
    good, bad = 'start: "a"\n', "start: nothing\n"
    expected = [trial.find_fault(grammar_from("lark", text)) for text in (good, bad)]
    assert [bool(fault) for fault in expected] == [False, True]

    def interrupted(*_: Any) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(trial, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trial.find_fault(grammar_from("lark", bad))
    assert [trial.find_fault(grammar_from("lark", text)) for text in (good, bad)] == expected
    trial.release()


def test_keywords_and_attributes_of_the_classes() -> None:
    params = stage3.GuidedDecodingParams(regex="a+", backend="xgrammar", whitespace_pattern=None, disable_fallback=True)
    assert (params.regex, params.backend, params.json, params.whitespace_pattern) == ("a+", "xgrammar", None, None)
    assert check(params) is None
    with pytest.raises(GrammarError, match="whitespace_pattern is not supported"):
        stage3.GuidedDecodingParams(regex="a+", whitespace_pattern=" ")
    with pytest.raises(GrammarError, match="has no 'regexp'"):
        stage3.StructuredOutputsParams(regexp="a+")
    with pytest.raises(AttributeError, match="has no pattern"):
        params.pattern  # noqa: B018


@pytest.mark.parametrize("asked", GOOD, ids=repr)
def test_good_constraints_cross_a_process_border(asked: dict[str, Any]) -> None:
    check(asked)
    constraint = constraint_of(asked)
    params = SamplingParams(structured_outputs=dict(asked))
    wire = Codec()
    request = wire.decode(wire.encode(EngineCoreRequest("a", [1], params)), EngineCoreRequest)
    assert constraint_of(request.params.structured_outputs or {}) == constraint


@pytest.mark.parametrize(("asked", "message"), BAD, ids=range(len(BAD)))
def test_bad_and_hostile_constraints_are_refused_by_name(asked: Any, message: str) -> None:
    with pytest.raises(GrammarError) as error:
        check(asked)
    assert message in str(error.value)
    assert len(str(error.value)) < 500


def test_params_are_a_dictionary_with_checks() -> None:
    params = StructuredOutputsParams(choice=["Positive", "Negative"])
    assert SamplingParams(structured_outputs=params).structured_outputs == {"choice": ["Positive", "Negative"]}
    wire = Codec()
    request = EngineCoreRequest("a", [1], SamplingParams(structured_outputs=params))
    assert wire.decode(wire.encode(request), EngineCoreRequest).params == request.params
    with pytest.raises(GrammarError, match="none is given"):
        StructuredOutputsParams()
    with pytest.raises(GrammarError, match="lazy"):
        StructuredOutputsParams(regex="a*?")


def test_older_names_are_accepted() -> None:
    guided = stage3.GuidedDecodingParams(regex="a+")
    assert guided == stage3.StructuredOutputsParams(regex="a+")
    params = stage3.SamplingParams(temperature=0.0, guided_decoding=guided)
    assert params == SamplingParams(temperature=0.0, guided_decoding={"regex": "a+"})
    assert params == SamplingParams(temperature=0.0, structured_outputs={"regex": "a+"})
    wire = Codec()
    request = wire.decode(wire.encode(EngineCoreRequest("a", [1], params)), EngineCoreRequest)
    assert request.params == params
    with pytest.raises(ValueError, match=r"^guided_decoding .* structured_outputs, and both are given: leave one out"):
        SamplingParams(guided_decoding=guided, structured_outputs=guided)


def test_constraints_under_the_older_name_are_checked() -> None:
    check_request(SamplingParams(guided_decoding={"choice": ["a"]}))
    with pytest.raises(GrammarError, match="must not be empty"):
        check_request(SamplingParams(guided_decoding={"choice": []}))
    with pytest.raises(GrammarError, match="none is given"):
        check_request(SamplingParams(guided_decoding={}))


def test_equal_constraints_have_one_spelling() -> None:
    assert constraint_of({"json": SCHEMA}) == constraint_of({"json": dict(SCHEMA)})
    assert constraint_of({"json": '{"type":  "integer"}'}) == constraint_of({"json": {"type": "integer"}})
    assert constraint_of({"json_object": True}) == Constraint("json_object", "")
    assert choices_of(constraint_of({"choice": ["é", "a"]})) == ["é", "a"]
    assert {constraint_of(asked).kind for asked in GOOD} == set(KINDS)
