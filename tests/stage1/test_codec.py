"""The codec: every record survives the border, and nothing else gets through it."""

from __future__ import annotations

import math
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stage1.codec import Codec, CodecError
from stage1.params import RequestOutputKind, SamplingParams
from stage1.records import (
    CachedRequests,
    EngineCoreOutputs,
    EngineCoreRequest,
    Extra,
    Logprobs,
    ModelRunnerOutput,
    NewRequestData,
    PromptLogprobs,
    SchedulerOutput,
    StepStats,
    Timings,
)


class GrammarBits(Extra, tag="grammar"):
    """Bytes, a number and text: what later stages send."""

    rows: dict[str, bytes]
    width: int = 0


class KVLanded(Extra, tag="kv_landed"):
    req_ids: list[str]
    seconds: float = 0.0


CODEC = Codec()
WITH_EXTRAS = Codec(extras=(GrammarBits, KVLanded))
RECORDS = (EngineCoreRequest, SchedulerOutput, ModelRunnerOutput, EngineCoreOutputs)

ids = st.integers(0, 2**31 - 1)
id_lists = st.lists(ids, max_size=5)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
floats = st.floats(width=64)  # infinities and not-a-number too
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
json_objects = st.none() | st.dictionaries(names, json_values, max_size=2)

sampling_params = st.builds(
    SamplingParams,
    n=st.just(1),
    temperature=st.floats(0, 2),
    top_p=st.floats(0.01, 1),
    top_k=st.integers(-1, 50),
    seed=st.none() | st.integers(0, 2**63 - 1),
    stop=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4), max_size=2),
    stop_token_ids=st.lists(st.integers(0, 1000), max_size=3),
    max_tokens=st.none() | st.integers(5, 100),
    min_tokens=st.integers(0, 5),
    logprobs=st.none() | st.integers(0, 5),
    logit_bias=st.none() | st.dictionaries(st.integers(0, 1000), st.floats(-100, 100), max_size=3),
    output_kind=st.sampled_from(RequestOutputKind),
    extra_args=json_objects,
    guided_decoding=json_objects,
    eos_token_ids=st.lists(st.integers(0, 1000), max_size=3),
)
logprobs = st.builds(
    Logprobs, st.lists(id_lists, max_size=2), st.lists(st.lists(floats, max_size=3), max_size=2), id_lists
)
prompt_logprobs = st.builds(PromptLogprobs, ids, logprobs)
extras = st.lists(
    st.builds(GrammarBits, st.dictionaries(names, st.binary(max_size=6), max_size=2), ids)
    | st.builds(KVLanded, st.lists(names, max_size=2), floats),
    max_size=3,
)


def by_name(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(names, values, max_size=2)


records = st.one_of(
    st.builds(
        EngineCoreRequest,
        names,
        id_lists,
        sampling_params,
        st.integers(-5, 5),
        st.floats(allow_nan=False),
        st.none() | names,
        json_objects,
        st.none() | ids,
    ),
    st.builds(
        SchedulerOutput,
        ids,
        st.lists(st.builds(NewRequestData, names, id_lists, id_lists, sampling_params, id_lists, ids), max_size=2),
        st.builds(CachedRequests, st.lists(names, max_size=2), id_lists, by_name(id_lists)),
        by_name(ids),
        by_name(id_lists),
        st.lists(names, max_size=2),
        st.lists(names, max_size=2),
        extras,
    ),
    st.builds(
        ModelRunnerOutput,
        st.lists(names, max_size=2),
        st.lists(id_lists, max_size=2),
        by_name(logprobs),
        by_name(prompt_logprobs),
        by_name(id_lists),
        by_name(names),
        extras,
    ),
    st.builds(
        EngineCoreOutputs,
        req_ids=st.lists(names, max_size=2),
        new_ids=st.lists(id_lists, max_size=2),
        logprobs=by_name(logprobs),
        prompt_logprobs=by_name(prompt_logprobs),
        finish_reason=by_name(names),
        stop_reason=by_name(ids),
        error=by_name(names),
        kv_transfer_params=by_name(st.dictionaries(names, json_values, max_size=2)),
        timings=by_name(st.builds(Timings, floats, floats, floats, floats)),
        stats=st.none() | st.builds(StepStats, ids, ids, ids, ids, floats, accepted_per_position=id_lists),
    ),
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and type all the way down; not-a-number equals itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, msgspec.Struct):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


# --- round trips ----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(records)
@example(ModelRunnerOutput(["é\U0001f600"], [[]], {"é": Logprobs([[1]], [[-math.inf, math.inf, math.nan]], [1])}))
@example(EngineCoreRequest("", [], SamplingParams(), kv_transfer_params={"größe": [None, 2**64 - 1]}))
def test_every_record_survives(record: Any) -> None:
    data = WITH_EXTRAS.encode(record)
    assert isinstance(data, bytes)
    assert same(WITH_EXTRAS.decode(data, type(record)), record)
    assert same(WITH_EXTRAS.decode(memoryview(data), type(record)), record)


def test_derived_end_tokens_survive_and_nothing_is_derived_again() -> None:
    params = SamplingParams(
        max_tokens=9,
        min_tokens=4,
        logit_bias={0: 100.0},
        eos_token_ids=[2, 0],
        bad_words=["no"],
        bad_words_ids=[[5, 6]],
    )
    request = EngineCoreRequest("a", [1, 2], params)
    received = CODEC.decode(CODEC.encode(request), EngineCoreRequest)
    assert received == request
    assert received.params.eos_token_ids == [2, 0]
    assert CODEC.encode(received) == CODEC.encode(request)


def test_extras_keep_their_kind_and_the_sender_keeps_his() -> None:
    sent: list[Extra] = [KVLanded(["a"], 1.5), GrammarBits({"a": b"\xff\x00"}, 32)]
    plan = SchedulerOutput(1, [], CachedRequests(), {"a": 1}, extras=sent)
    received = WITH_EXTRAS.decode(WITH_EXTRAS.encode(plan), SchedulerOutput)
    assert [type(extra) for extra in received.extras] == [KVLanded, GrammarBits]
    assert received == plan
    assert plan.extras is sent


def test_one_codec_serves_many_threads() -> None:
    plan = SchedulerOutput(1, [], CachedRequests(), {"a": 1}, extras=[KVLanded(["a"])])
    fresh, wrong = Codec((KVLanded,)), []

    def work() -> None:
        for _ in range(200):
            if fresh.decode(fresh.encode(plan), SchedulerOutput) != plan:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- refusals -------------------------------------------------------------------------------------


def test_an_extra_that_the_receiver_does_not_know_is_named() -> None:
    data = WITH_EXTRAS.encode(SchedulerOutput(1, [], CachedRequests(), {}, extras=[KVLanded(["a"])]))
    with pytest.raises(CodecError, match=r"not a SchedulerOutput: .*'kv_landed'.*kinds of Extra known here: none"):
        CODEC.decode(data, SchedulerOutput)
    with pytest.raises(CodecError, match=r"'kv_landed'.*known here: grammar"):
        Codec((GrammarBits,)).decode(data, SchedulerOutput)


def test_kinds_that_cannot_be_told_apart_are_refused_at_once() -> None:
    class Other(Extra, tag="grammar"):
        pass

    class Stranger(msgspec.Struct):
        pass

    with pytest.raises(ValueError, match="two kinds of Extra have the same tag: grammar, grammar"):
        Codec((GrammarBits, Other))
    with pytest.raises(ValueError, match="Stranger is no kind of Extra"):
        Codec((Stranger,))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", RECORDS)
@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=60))
@example(data=b"\xdd\xff\xff\xff\xff")  # an array of four thousand million
@example(data=b"\x92" * 5000)
@example(data=b"\x81\xa2\xff\xfe\x00")  # a key that is not UTF-8
def test_foreign_bytes_are_a_codec_error(kind: type[Any], data: bytes) -> None:
    try:
        received = WITH_EXTRAS.decode(data, kind)
    except CodecError:
        return
    assert isinstance(received, kind)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(records, st.data())
def test_cut_or_changed_messages_are_a_codec_error_or_a_record(record: Any, data: st.DataObject) -> None:
    message = bytearray(WITH_EXTRAS.encode(record))
    with pytest.raises(CodecError):
        WITH_EXTRAS.decode(message[: data.draw(st.integers(0, len(message) - 1))], type(record))
    message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        received = WITH_EXTRAS.decode(message, type(record))
    except CodecError:
        return
    assert isinstance(received, type(record))


def test_endless_nesting_is_a_codec_error() -> None:
    data = b"\x81\xb2kv_transfer_params" + b"\x81\xa1x" * 100_000  # {"x": {"x": {"x": …
    with pytest.raises(CodecError, match=r"not a EngineCoreRequest: .*recursion"):
        CODEC.decode(data, EngineCoreRequest)


@pytest.mark.parametrize("sent", RECORDS)
@pytest.mark.parametrize("expected", RECORDS)
def test_a_record_of_another_type_is_refused(sent: type[Any], expected: type[Any]) -> None:
    examples: dict[type[Any], Any] = {
        EngineCoreRequest: EngineCoreRequest("a", [1], SamplingParams()),
        SchedulerOutput: SchedulerOutput(1, [], CachedRequests(), {"a": 1}),
        ModelRunnerOutput: ModelRunnerOutput(["a"], [[1]]),
        EngineCoreOutputs: EngineCoreOutputs(["a"], [[1]]),
    }
    data = CODEC.encode(examples[sent])
    if sent is expected:
        assert CODEC.decode(data, expected) == examples[sent]
    else:
        with pytest.raises(CodecError, match=f"not a {expected.__name__}"):
            CODEC.decode(data, expected)


def test_parameters_are_checked_on_arrival() -> None:
    request = msgspec.to_builtins(EngineCoreRequest("a", [1], SamplingParams(top_p=0.5)))
    request["params"]["top_p"] = 7.0
    with pytest.raises(CodecError, match=r"top_p must be .*\$\.params"):
        CODEC.decode(msgspec.msgpack.encode(request), EngineCoreRequest)


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize("value", [2**70, object(), "\ud800", ENDLESS], ids=["big", "object", "surrogate", "endless"])
def test_what_msgpack_cannot_hold_is_a_codec_error(value: Any) -> None:
    with pytest.raises(CodecError, match="cannot encode EngineCoreRequest"):
        CODEC.encode(EngineCoreRequest("a", [1], SamplingParams(), kv_transfer_params={"x": value}))
