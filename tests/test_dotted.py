"""Dotted flags: what is given key by key is what the same JSON would give."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sixfold.cli import with_dashes
from sixfold.dotted import add_dotted, json_value
from sixfold.errors import UsageError
from sixfold.flags import add_settings, given_settings
from stage1.config import Settings, setting
from stage3.config import SpeculativeConfig


@dataclass(frozen=True)
class PlanConfig:
    """Plans."""

    plan_config: str | None = setting(None, "what to do", json=True)
    other: str | None = setting('{"a": 1}', "what else to do", json=True)
    name: str = setting("x", "no object")


def settings_of(*argv: str, configs: tuple[type[Any], ...] = (PlanConfig,)) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_settings(parser, configs)
    arguments = with_dashes(argv)
    add_dotted(parser, arguments)
    return given_settings(parser.parse_args(arguments))


def plan_of(*argv: str) -> Any:
    found = settings_of(*argv)
    assert list(found) == ["plan_config"]
    return json.loads(found["plan_config"])


keys = st.from_regex(r"[a-z][a-z0-9]{0,2}(_[a-z0-9]+)?", fullmatch=True)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
leaves = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
objects = st.recursive(
    st.dictionaries(keys, leaves, min_size=1, max_size=3),
    lambda inner: st.dictionaries(keys, inner | leaves, min_size=1, max_size=3),
    max_leaves=6,
)


def paths(tree: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every leaf with the keys that lead to it."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from paths(value, (*above, key))
        else:
            yield (*above, key), value


def written(draw: st.DrawFn, tree: dict[str, Any]) -> list[str]:
    """``tree`` as dotted flags, each spelled in one of the ways that there are."""
    argv = []
    for path, value in paths(tree):
        text = json.dumps(value)
        if isinstance(value, str) and json_value(value) == value and draw(st.booleans()):
            text = value  # no quotes needed
        flag = ".".join(("--plan-config", *path))
        if draw(st.booleans()):
            flag = "--" + flag[2:].replace("_", "-")
        elif draw(st.booleans()):
            flag = "--" + flag[2:].replace("-", "_")
        argv += [f"{flag}={text}"] if text.startswith("-") or draw(st.booleans()) else [flag, text]
    return argv


def over(below: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """The same merge, written step by step and in place."""
    *outer, last = path
    for key in outer:
        if not isinstance(below.get(key), dict):
            below[key] = {}
        below = below[key]
    below[last] = value


@given(objects, st.data())
def test_any_object_can_be_given_key_by_key(tree: dict[str, Any], data: st.DataObject) -> None:
    assert plan_of(*data.draw(st.composite(written)(tree))) == tree


@given(objects, objects, st.data())
def test_keys_are_merged_over_the_json_wherever_it_stands(
    below: dict[str, Any], tree: dict[str, Any], data: st.DataObject
) -> None:
    flags = data.draw(st.composite(written)(tree))
    expected = json.loads(json.dumps(below))
    for path, value in paths(tree):
        over(expected, path, value)
    whole = f"--plan-config={json.dumps(below)}"
    assert plan_of(whole, *flags) == plan_of(*flags, whole) == expected


@given(st.text() | st.builds(json.dumps, leaves))
@example("1e999")
@example("[-1e999]")
@example("-Infinity")
@example("NaN")
@example("[" * 100_000)
@example("9" * 5000)
def test_text_is_json_or_itself(text: str) -> None:
    expected: Any = text
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        json.dumps(found, allow_nan=False)  # of Python's JSON, what is not everybody's is a text
        expected = found
    assert json_value(text) == expected
    assert type(json_value(text)) is type(expected)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("4", 4), ("-4", -4), ("0.5", 0.5), ("-.5", "-.5"), ("1e3", 1000.0), ("true", True), ("null", None)),
        *(("True", "True"), ("ngram", "ngram"), ("", ""), ('"4"', "4"), ("4k", "4k"), ("1e999", "1e999")),
        *(("NaN", "NaN"), ("[1, 2]", [1, 2]), ('{"b": 1}', {"b": 1}), ("[1, 2", "[1, 2"), ("a=b.c", "a=b.c")),
    ],
)
def test_values(text: str, value: Any) -> None:
    found = plan_of(f"--plan-config.a={text}")["a"]
    assert (found, type(found)) == (value, type(value))


def test_a_later_value_counts_and_objects_grow() -> None:
    assert plan_of("--plan-config.a", "1", "--plan-config.a", "-2") == {"a": -2}
    assert plan_of("--plan-config.a", "1", "--plan-config.a.b", "2") == {"a": {"b": 2}}
    assert plan_of("--plan-config.a.b", "2", "--plan-config.a", "1") == {"a": 1}
    assert plan_of("--plan-config.a.b", "2", "--plan-config.a", '{"c": 3}') == {"a": {"b": 2, "c": 3}}
    assert plan_of("--plan-config", '{"a": {"b": 1}}', "--plan-config.a.b=2") == {"a": {"b": 2}}


def test_settings_without_keys_are_left_as_they_are() -> None:
    assert settings_of("--plan-config", "not JSON at all", "--name", "n.n") == {
        "plan_config": "not JSON at all", "name": "n.n",
    }  # fmt: skip
    # The whole would replace a default, and so do keys.
    assert settings_of("--other.b=1", "--plan-config", "{}") == {"plan_config": "{}", "other": '{"b": 1}'}


@pytest.mark.parametrize("text", ["[]", "null", "", "x", '{"a": NaN}', '{"a": 1'])
def test_keys_need_an_object_below_them(text: str) -> None:
    with pytest.raises(UsageError, match=r"--plan-config is .* no JSON object, so --plan-config.a-b.c has nothing"):
        settings_of(f"--plan-config={text}", "--plan-config.a_b.c=1")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--name.a", "1"], "unrecognized arguments: --name.a (flags with keys: --plan-config.KEY, --other.KEY)"),
        (["--plan.a=1"], "unrecognized arguments: --plan.a "),
        (["--plan-config.", "1"], "unrecognized arguments: --plan-config. "),
        (["--plan-config..a=1"], "unrecognized arguments: --plan-config..a "),
        (["--plan-config.a."], "unrecognized arguments: --plan-config.a. "),
        (["--plan-config.a"], "--plan-config.a: expected one argument"),
        (["--plan-config.a", "--name", "n"], "--plan-config.a: expected one argument"),
        (["--plan-config.a", "1", "2"], "unrecognized arguments: 2"),
        (["--.a=1"], "unrecognized arguments: --.a"),
    ],
)
def test_what_is_no_key_of_a_json_setting_is_refused_by_name(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        settings_of(*argv)
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_help_says_that_there_are_keys() -> None:
    parser = argparse.ArgumentParser()
    add_settings(parser, (PlanConfig,))
    add_dotted(parser, ["--plan-config.a=1"])
    shown = " ".join(parser.format_help().split())
    assert "--plan-config JSON what to do; or key by key: --plan-config.KEY VALUE" in shown
    assert "--plan-config.a" not in shown
    assert "--name.KEY" not in shown


def test_speculation_is_configured_key_by_key() -> None:
    def rules(*argv: str) -> Any:
        given = settings_of(*argv, configs=(SpeculativeConfig,))
        return Settings.from_keywords((SpeculativeConfig,), given)[SpeculativeConfig].rules()

    whole = rules("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')
    assert whole is not None
    assert rules("--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens", "4") == whole
    assert rules("--speculative_config.num-speculative-tokens=4", "--speculative_config.method=ngram") == whole
