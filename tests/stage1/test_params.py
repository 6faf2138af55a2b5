"""SamplingParams: every field is checked, hostile sizes are refused quickly, and nothing is lost on the wire."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stage1.params import RequestOutputKind, SamplingParams
from stage1.params_check import MAX_BAD_WORDS, MAX_N, MAX_STOPS, MAX_TOKEN_RULES, MIN_TEMPERATURE, check_against_vocab

NAN, INF = math.nan, math.inf

EVERY_FIELD: dict[str, Any] = {
    "n": 3,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.25,
    "repetition_penalty": 1.5,
    "temperature": 0.75,
    "top_p": 0.5,
    "top_k": 7,
    "min_p": 0.125,
    "seed": -(2**63),
    "stop": ["\n\n", "é"],
    "stop_token_ids": [5, 6],
    "bad_words": ["word"],
    "include_stop_str_in_output": True,
    "ignore_eos": True,
    "max_tokens": 2**31 - 1,
    "min_tokens": 4,
    "logprobs": 0,
    "prompt_logprobs": -1,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "truncate_prompt_tokens": -1,
    "logit_bias": {0: 100.0, 2: -1.5},
    "allowed_token_ids": [1, 2],
    "output_kind": RequestOutputKind.DELTA,
    "structured_outputs": {"choice": ["a", "b"]},
    "extra_args": {"x": [1, {"y": None}]},
    "eos_token_ids": [2, 0],
    "bad_words_ids": [[9], [8, 9]],
}

REFUSED: list[tuple[str, list[Any]]] = [
    ("n", [0, -1, 1.0, True, None, "2", MAX_N + 1, 10**9]),
    ("presence_penalty", [-2.01, 2.01, NAN, INF, True, None, "1"]),
    ("frequency_penalty", [-2.01, 2.01, NAN, -INF, "1"]),
    ("repetition_penalty", [0, 0.0, -1.0, NAN, INF, 1e39, 1e-39, None]),
    ("temperature", [-0.1, -1e-9, NAN, INF, 1e39, 10**400, True, None, "0.5"]),
    ("top_p", [0, 0.0, -0.1, 1.0001, NAN, None]),
    ("top_k", [-2, 1.0, 2.5, NAN, True, None, 2**31, 10**5000]),
    ("min_p", [-0.1, 1.1, NAN, None]),
    ("seed", [2**63, -(2**63) - 1, 1.0, True, "1"]),
    ("stop", [[""], ["a", ""], [1], [None], 5, ("a",), ["a" * 10_000], ["a"] * (MAX_STOPS + 1)]),
    ("stop_token_ids", [[-1], [1.0], [True], ["2"], 2, "2", [2**31]]),
    ("bad_words", [[""], [1], "word", ["a" * 10_000], ["a"] * (MAX_BAD_WORDS + 1)]),
    ("include_stop_str_in_output", [1, None, "yes"]),
    ("ignore_eos", [0, None]),
    ("max_tokens", [0, -1, 2**31, 10**18, 1.0, True]),
    ("min_tokens", [-1, 17, None, 1.0]),  # 17 > the default max_tokens
    ("logprobs", [-2, 1.0, True, 2**31]),
    ("prompt_logprobs", [-2, 0.0, True]),
    ("detokenize", [1, None]),
    ("skip_special_tokens", [1]),
    ("spaces_between_special_tokens", [1]),
    ("truncate_prompt_tokens", [0, -2, 1.0]),
    ("logit_bias", [{5: NAN}, {5: INF}, {5: 1e9}, {5: -100.01}, {"5": 1.0}, {-1: 1.0}, {True: 1.0}, {5: None}, [5]]),
    ("allowed_token_ids", [[], [-1], ["a"], [True], 5]),
    ("output_kind", [1, None, "delta"]),
    ("structured_outputs", [[], "json"]),
    ("guided_decoding", [[], "json"]),
    ("extra_args", [[], 1]),
    ("eos_token_ids", [[-1], None]),
    ("bad_words_ids", [[[]], [[-1]], [5], None]),
]


@pytest.mark.parametrize(("name", "values"), REFUSED, ids=[name for name, _ in REFUSED])
def test_bad_values_are_refused_and_named(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^{name}\b") as caught:
            SamplingParams(**{name: value})
        assert len(str(caught.value)) < 300


def test_refusals_cover_every_field() -> None:
    assert {name for name, _ in REFUSED} == set(SamplingParams.__struct_fields__)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("n", [1, MAX_N]),
        ("temperature", [0, 1, 1e-30, 2.5, 100]),
        ("top_p", [1e-9, 1, 1.0]),
        ("top_k", [-1, 0, 1, 49152, 10**9]),
        ("min_p", [0, 1]),
        ("seed", [None, 0, -5, 2**63 - 1, -(2**63)]),
        ("presence_penalty", [-2, 2]),
        ("repetition_penalty", [1e-3, 2]),
        ("max_tokens", [None, 1, 2**31 - 1]),
        ("logprobs", [None, -1, 0, 20]),
        ("logit_bias", [None, {}, {0: -100, 1: 100}]),
        ("stop", ["a", [], ["a"], None]),
        ("truncate_prompt_tokens", [None, -1, 1]),
    ],
)
def test_values_at_the_edges_are_taken(name: str, values: list[Any]) -> None:
    for value in values:
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"min_tokens": 5, "max_tokens": 4}, ("min_tokens", "max_tokens")),
        ({"n": 2, "temperature": 0}, ("n ", "temperature")),
        ({"stop": ["a"], "detokenize": False}, ("stop", "detokenize")),
        ({"guided_decoding": {"regex": "a"}, "structured_outputs": {"regex": "a"}}, ("guided", "structured_outputs")),
        ({"guided_decoding": {}, "structured_outputs": {}}, ("guided_decoding", "structured_outputs")),
    ],
)
def test_contradictions_name_both(values: dict[str, Any], names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=f"^{names[0]}.*{names[1]}"):
        SamplingParams(**values)


HOSTILE: dict[str, list[Callable[[], Any]]] = {
    "n": [lambda: 10**9],
    "stop": [lambda: ["x"] * 10**6, lambda: ["x" * 10**7]],
    "bad_words": [lambda: ["x"] * 10**6],
    "max_tokens": [lambda: 10**18],
    "logit_bias": [lambda: dict.fromkeys(range(10**6), 1.0)],
    "allowed_token_ids": [lambda: list(range(10**6))],
    "stop_token_ids": [lambda: list(range(10**6))],
    "bad_words_ids": [lambda: [[1]] * 10**6],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sizes_are_refused_quickly(name: str) -> None:
    for make in HOSTILE[name]:
        value = make()
        start = time.process_time()
        with pytest.raises(ValueError, match=f"^{name}"):
            SamplingParams(**{name: value})
        assert time.process_time() - start < 0.5


def test_largest_legal_lists_are_checked_quickly() -> None:
    ids = list(range(MAX_TOKEN_RULES))
    start = time.process_time()
    SamplingParams(allowed_token_ids=ids, logit_bias=dict.fromkeys(ids, 1.0))
    assert time.process_time() - start < 1.0


def test_wire_keeps_every_field() -> None:
    params = SamplingParams(**EVERY_FIELD)
    back = msgspec.msgpack.Decoder(SamplingParams).decode(msgspec.msgpack.Encoder().encode(params))
    assert back == params
    for name, value in EVERY_FIELD.items():
        assert getattr(back, name) == value, name
    assert set(EVERY_FIELD) == set(SamplingParams.__struct_fields__) - {"detokenize", "guided_decoding"}
    assert back.output_kind is RequestOutputKind.DELTA


def test_wire_derives_nothing() -> None:
    params = SamplingParams(stop="a", seed=-1)  # type: ignore[arg-type]
    assert (params.stop, params.seed) == (["a"], None)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params


def test_the_older_name_of_structured_outputs_is_only_another_way_to_give_it() -> None:
    params = SamplingParams(guided_decoding={"regex": "a+"})
    assert params == SamplingParams(structured_outputs={"regex": "a+"})
    assert (params.structured_outputs, params.guided_decoding) == ({"regex": "a+"}, None)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params)) == {"structured_outputs": {"regex": "a+"}}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams) == params
    assert params.replace(temperature=0.5).structured_outputs == {"regex": "a+"}
    assert SamplingParams().replace(guided_decoding={"regex": "a+"}) == params
    with pytest.raises(ValueError, match=r"^guided_decoding .* structured_outputs, and both are given"):
        params.replace(guided_decoding={"regex": "b"})
    assert params.replace(structured_outputs=None, guided_decoding={}).structured_outputs == {}


def test_wire_checks_again() -> None:
    with pytest.raises(msgspec.ValidationError, match="top_p"):
        msgspec.msgpack.decode(msgspec.msgpack.encode({"top_p": 0.0}), type=SamplingParams)


def test_params_cannot_be_changed() -> None:
    params = SamplingParams()
    with pytest.raises(AttributeError):
        params.temperature = 0.5  # type: ignore[misc]
    assert params.replace(temperature=0.5).temperature == 0.5
    assert params.temperature == 1.0
    with pytest.raises(ValueError, match=r"^temperature"):
        params.replace(temperature=-1)


def test_small_temperatures_are_lifted() -> None:
    assert SamplingParams(temperature=1e-30).effective_temperature == MIN_TEMPERATURE
    assert not SamplingParams(temperature=1e-30).is_greedy
    assert SamplingParams(temperature=0).is_greedy
    assert SamplingParams(temperature=0.5).effective_temperature == 0.5


# --- against the vocabulary -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"logit_bias": {49152: 1.0}}, "logit_bias"),
        ({"stop_token_ids": [49152]}, "stop_token_ids"),
        ({"allowed_token_ids": [1, 49152]}, "allowed_token_ids"),
        ({"eos_token_ids": [49152]}, "eos_token_ids"),
        ({"bad_words_ids": [[1], [2, 49152]]}, "bad_words_ids"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": 10**9}, "logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ],
)
def test_vocabulary_and_limit_refuse(values: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        check_against_vocab(SamplingParams(**values), 49152, 20)


def test_vocabulary_accepts_its_own() -> None:
    last = 49151
    params = SamplingParams(
        logit_bias={last: 1.0},
        stop_token_ids=[last],
        allowed_token_ids=[last],
        bad_words_ids=[[last]],
        logprobs=20,
        prompt_logprobs=20,
    )
    check_against_vocab(params, 49152, 20)
    check_against_vocab(SamplingParams(), 49152, 0)
    check_against_vocab(SamplingParams(logprobs=-1, prompt_logprobs=100), 100, -1)
    with pytest.raises(ValueError, match=r"^logprobs "):
        check_against_vocab(SamplingParams(logprobs=101), 100, -1)
