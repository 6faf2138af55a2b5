"""Ids to outputs: text, stops, deliveries, children, log-probabilities and times."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from stage1.input_processor import InputProcessor
from stage1.model.byte_tokenizer import EOS, ByteTokenizer
from stage1.output_processor import OutputProcessor, Processed
from stage1.outputs import Logprob, RequestOutput
from stage1.params import RequestOutputKind, SamplingParams
from stage1.records import EngineCoreOutputs, Logprobs, PromptLogprobs, Timings

F1_IDS = [216, 38, 28, 216, 39, 28, 216, 40, 28, 216, 41, 28, 216, 33, 32, 28]  # " 6, 7, 8, 9, 10,"
DELTA, FINAL = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY


class Front:
    """Both processors, and a core that says what it is told to."""

    def __init__(self, inputs: InputProcessor, outputs: OutputProcessor) -> None:
        self.inputs, self.outputs = inputs, outputs

    def add(self, request_id: str = "r", prompt: Any = (5, 6, 7), **params: Any) -> list[str]:
        admission = self.inputs.process(prompt, SamplingParams(**params), request_id=request_id, arrival_time=1.0)
        self.outputs.add(admission)
        return [child.req_id for child in admission.children]

    def step(self, tokens: dict[str, list[int]], **columns: Any) -> tuple[list[RequestOutput], list[str]]:
        outputs = EngineCoreOutputs(req_ids=list(tokens), new_ids=list(tokens.values()), **columns)
        processed = self.outputs.process(outputs)
        return processed.outputs, processed.aborts


@pytest.fixture
def front(smollm_source: Any, smollm_tokenizer: Any) -> Front:
    return Front(InputProcessor(smollm_source, smollm_tokenizer), OutputProcessor(smollm_tokenizer, clock=lambda: 9.0))


@pytest.fixture
def byte_front(smollm_source: Any) -> Front:
    return Front(InputProcessor(smollm_source, ByteTokenizer()), OutputProcessor(ByteTokenizer()))


def play(front: Front, ids: list[int], size: int = 1, reason: str = "length", **params: Any) -> list[RequestOutput]:
    """Feed ``ids``, ``size`` a step, until the request ends."""
    (req_id,) = front.add(**params)
    seen: list[RequestOutput] = []
    for start in range(0, len(ids), size):
        last = start + size >= len(ids)
        outputs, _ = front.step({req_id: ids[start : start + size]}, finish_reason={req_id: reason} if last else {})
        seen += outputs
        if seen and seen[-1].finished:
            break
    assert not front.outputs.has_unfinished
    return seen


# --- text and stops -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize(
    ("params", "text", "tokens", "stop_reason"),
    [
        ({"stop": ["8, 9"]}, " 6, 7, ", 11, "8, 9"),
        ({"stop": ["8, 9"], "include_stop_str_in_output": True}, " 6, 7, 8, 9", 11, "8, 9"),
        ({"stop": [", 8"]}, " 6, 7", 8, ", 8"),
        ({"stop": ["7"], "min_tokens": 8, "max_tokens": 16}, " 6, 7, 8, 9, 10,", 16, None),
        ({"stop": ["9"], "min_tokens": 3}, " 6, 7, 8, ", 11, "9"),
        ({"stop": ["10,"]}, " 6, 7, 8, 9, ", 16, "10,"),  # with the token that reaches max_tokens
        ({"stop": ["zzz"]}, " 6, 7, 8, 9, 10,", 16, None),
        ({"stop": [",x"]}, " 6, 7, 8, 9, 10,", 16, None),  # held back at the end, and given out
    ],
)
def test_stop_strings(
    front: Front, size: int, params: dict[str, Any], text: str, tokens: int, stop_reason: str | None
) -> None:
    """The same at one token a step and at several, streamed and at the end."""
    expected = (F1_IDS[:tokens], "length" if stop_reason is None else "stop", stop_reason)
    final = play(front, F1_IDS, size, output_kind=FINAL, **params)[-1].outputs[0]
    assert (final.text, (final.token_ids, final.finish_reason, final.stop_reason)) == (text, expected)
    news = [output.outputs[0] for output in play(front, F1_IDS, size, output_kind=DELTA, **params)]
    assert "".join(output.text for output in news) == text
    assert [i for output in news for i in output.token_ids] == F1_IDS[:tokens]
    assert (news[-1].finish_reason, news[-1].stop_reason) == expected[1:]
    assert not any(output.finished() for output in news[:-1])


def test_the_core_hears_of_a_stop_string(front: Front) -> None:
    (req_id,) = front.add(stop=["7"])
    assert front.step({req_id: F1_IDS[:4]})[1] == []
    outputs, aborts = front.step({req_id: F1_IDS[4:6]})
    assert (aborts, outputs[0].finished) == ([req_id], True)
    assert front.step({req_id: [28]}) == ([], [])  # still under way when it was aborted
    (req_id,) = front.add(stop=["7"])
    assert front.step({req_id: F1_IDS[:5]}, finish_reason={req_id: "length"})[1] == []  # it has ended already


def test_a_stop_string_in_the_prompt_is_none(front: Front) -> None:
    output = play(front, F1_IDS[:6], prompt="8, 9", stop=["8, 9"])[-1].outputs[0]
    assert (output.text, output.finish_reason) == (" 6, 7,", "length")


@pytest.mark.parametrize(
    ("include", "skip", "eos_text", "nine"),
    [(False, True, "", ""), (True, True, "", "9"), (True, False, "<|im_end|>", "9")],
)
def test_the_stop_tokens_own_text(front: Front, include: bool, skip: bool, eos_text: str, nine: str) -> None:
    options: dict[str, Any] = {"include_stop_str_in_output": include, "skip_special_tokens": skip}
    output = play(front, [7042, 2], reason="stop", **options)[-1].outputs[0]
    assert (output.text, output.token_ids, output.stop_reason) == (f" Paris{eos_text}", [7042, 2], None)
    (req_id,) = front.add(stop_token_ids=[41], **options)
    outputs, _ = front.step({req_id: F1_IDS[:11]}, finish_reason={req_id: "stop"}, stop_reason={req_id: 41})
    output = outputs[0].outputs[0]
    assert (output.text, output.token_ids, output.stop_reason) == (f" 6, 7, 8, {nine}", F1_IDS[:11], 41)


def test_eos_is_hidden_without_include(front: Front) -> None:
    assert play(front, [7042, 2], reason="stop", skip_special_tokens=False)[-1].outputs[0].text == " Paris"
    # An EOS that ends nothing (ignore_eos) is an ordinary special token.
    shown = play(front, [2, 7042], skip_special_tokens=False, ignore_eos=True)[-1].outputs[0].text
    assert shown == "<|im_end|> Paris"


def test_half_a_character_at_the_end(front: Front) -> None:
    news = play(front, [10813, 116, 243, 10813, 116], output_kind=DELTA)
    assert [output.outputs[0].text for output in news] == ["", "", "🦙", "", "\ufffd"]
    assert [output.outputs[0].token_ids for output in news] == [[10813], [116], [243], [10813], [116]]


def test_tokens_only(front: Front) -> None:
    output = play(front, F1_IDS, detokenize=False, logprobs=None)[-1].outputs[0]
    assert (output.text, output.token_ids) == ("", F1_IDS)


# --- deliveries and children ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", RequestOutputKind)
def test_children_under_one_request(front: Front, kind: RequestOutputKind) -> None:
    a, b, c = front.add(n=3, seed=1, output_kind=kind, stop=["7"])
    first, _ = front.step({a: [216], b: [38], c: [28]})
    second, aborts = front.step({c: [39], a: [38]})  # c stops, b has no news
    third, _ = front.step({b: [28], a: [28]}, finish_reason={a: "length"})
    assert aborts == [c]
    assert front.outputs.has_unfinished
    last, _ = front.step({b: [2]}, finish_reason={b: "stop"})
    assert [len(outputs) for outputs in (first, second, third, last)] == ([0, 0, 0, 1] if kind is FINAL else [1] * 4)
    assert not front.outputs.has_unfinished
    assert last[0].finished

    if kind is DELTA:
        indices = [[o.index for o in out[0].outputs] for out in (first, second, third, last)]
        assert indices == [[0, 1, 2], [0, 2], [0, 1], [1]]
        assert [o.text for o in second[0].outputs] == ["6", ""]
        assert last[0].outputs[0].text == ""
        return
    assert [o.index for o in last[0].outputs] == [0, 1, 2]
    assert [o.text for o in last[0].outputs] == [" 6,", "6,", ","]
    assert [o.finish_reason for o in last[0].outputs] == ["length", "stop", "stop"]
    assert [o.stop_reason for o in last[0].outputs] == [None, None, "7"]
    if kind is RequestOutputKind.CUMULATIVE:
        assert [o.text for o in second[0].outputs] == [" 6", "6", ","]
        assert not second[0].finished


def test_outputs_keep_what_they_were(front: Front) -> None:
    (req_id,) = front.add(logprobs=0)
    rows = Logprobs(ids=[[38]], values=[[-1.0]], ranks=[1])
    earlier = front.step({req_id: [38]}, logprobs={req_id: rows})[0][0]
    front.step({req_id: [28]}, logprobs={req_id: Logprobs(ids=[[28]], values=[[-1.0]], ranks=[1])})
    assert earlier.outputs[0].token_ids == [38]
    assert len(earlier.outputs[0].logprobs or []) == 1


def test_requests_of_one_step(front: Front) -> None:
    (a,), (b,) = front.add("a"), front.add("b")
    outputs, _ = front.step({b: [38], a: [39], "unknown-0-0": [5]}, finish_reason={"unknown-0-0": "stop"})
    assert [(out.request_id, out.outputs[0].text) for out in outputs] == [("b", "6"), ("a", "7")]


def test_one_id_twice(front: Front) -> None:
    (old,) = front.add("same")
    with pytest.raises(ValueError, match="'same' is in use"):
        front.add("same")
    assert front.outputs.abort("same").aborts == [old]
    (new,) = front.add("same")
    outputs, _ = front.step({old: [38], new: [39]})
    assert [out.outputs[0].text for out in outputs] == ["7"]  # the old one's token is nobody's


def test_abort(front: Front) -> None:
    a, b = front.add("r", n=2, seed=0)
    front.step({a: [38]}, finish_reason={a: "length"})
    ended = front.outputs.abort("r")
    assert ended.aborts == [b]
    assert (ended.outputs[0].finished, ended.outputs[0].outputs[-1].finish_reason) == (True, "abort")
    assert front.outputs.abort("r") == front.outputs.abort("unknown") == Processed()
    assert front.step({b: [38]}) == ([], [])
    assert not front.outputs.has_unfinished


def test_errors(front: Front) -> None:
    (req_id,) = front.add(stop=["6x"], output_kind=DELTA)
    front.step({req_id: [216, 38]})
    outputs, aborts = front.step({req_id: []}, finish_reason={req_id: "error"}, error={req_id: "logits are NaN"})
    output = outputs[0].outputs[0]
    assert (output.text, output.finish_reason, output.error, aborts) == ("6", "error", "logits are NaN", [])


def test_a_dead_engine(front: Front) -> None:
    a, _ = front.add("a", n=2, seed=0)
    front.add("b", output_kind=FINAL)
    front.step({a: [38]}, finish_reason={a: "length"})
    last = front.outputs.fail_all("the device is gone")
    assert [[o.finish_reason for o in out.outputs] for out in last] == [["length", "error"], ["error"]]
    assert last[0].outputs[1].error == "the device is gone"
    assert all(out.finished for out in last)
    assert not front.outputs.has_unfinished


# --- log-probabilities, prompt, times -------------------------------------------------------------


def test_logprobs(front: Front) -> None:
    (req_id,) = front.add(logprobs=2)
    rows = Logprobs(
        ids=[[38, 38, 39], [116, 28, 41]], values=[[-0.5, -0.5, -1.5], [-math.inf, -0.1, -2.0]], ranks=[1, 49000]
    )
    outputs, _ = front.step({req_id: [38, 116]}, logprobs={req_id: rows})
    output = outputs[0].outputs[0]
    assert output.logprobs is not None
    assert list(output.logprobs[0].items()) == [(38, Logprob(-0.5, 1, "6")), (39, Logprob(-1.5, 2, "7"))]
    assert list(output.logprobs[1].values()) == [
        Logprob(-9999.0, 49000, "\ufffd"),
        Logprob(-0.1, 1, ","),
        Logprob(-2.0, 2, "9"),
    ]
    assert output.cumulative_logprob == pytest.approx(-9999.5)
    json.dumps([entry.logprob for entry in output.logprobs[1].values()], allow_nan=False)


def test_logprobs_end_with_the_stop_string(front: Front) -> None:
    (req_id,) = front.add(logprobs=0, stop=["6"])
    rows = Logprobs(ids=[[216], [38], [28]], values=[[-1.0], [-2.0], [-4.0]], ranks=[1, 1, 1])
    output = front.step({req_id: [216, 38, 28]}, logprobs={req_id: rows})[0][0].outputs[0]
    assert (output.token_ids, len(output.logprobs or []), output.cumulative_logprob) == ([216, 38], 2, -3.0)


def test_no_logprobs_unless_asked(front: Front) -> None:
    output = play(front, [38])[-1].outputs[0]
    assert (output.logprobs, output.cumulative_logprob) == (None, None)


def test_prompt_logprobs_in_parts(front: Front) -> None:
    def part(start: int, ids: list[int], value: float) -> PromptLogprobs:
        rows = Logprobs(ids=[[i] for i in ids], values=[[value]] * len(ids), ranks=[1] * len(ids))
        return PromptLogprobs(start=start, rows=rows)

    (req_id,) = front.add(prompt=[5, 38, 39, 40], prompt_logprobs=0, output_kind=DELTA)
    assert front.step({req_id: []}, prompt_logprobs={req_id: part(1, [38, 39], -1.0)}) == ([], [])
    # Preempted, the prompt is computed anew: the same positions again, and the rest.
    again = front.step({req_id: [41]}, prompt_logprobs={req_id: part(1, [38, 39, 40], -2.0)})[0][0]
    assert again.prompt_logprobs is not None
    assert again.prompt_logprobs[0] is None
    assert [next(iter(row.items())) for row in again.prompt_logprobs[1:] if row] == [
        (38, Logprob(-1.0, 1, "6")),
        (39, Logprob(-1.0, 1, "7")),
        (40, Logprob(-2.0, 1, "8")),
    ]
    assert front.step({req_id: [41]})[0][0].prompt_logprobs is None  # a delta holds what is new


def test_what_is_said_of_the_request(front: Front) -> None:
    a, b = front.add(prompt="1, 2", n=2, seed=0)
    first = front.step({a: [38]}, num_cached_tokens={a: 2}, kv_transfer_params={a: {"x": 1}})[0][0]
    assert (first.prompt, first.prompt_token_ids) == ("1, 2", front.inputs.tokenizer.encode("1, 2"))
    assert (first.num_cached_tokens, first.kv_transfer_params) == (2, {"x": 1})
    assert (first.metrics.arrival_time, first.metrics.first_token, first.metrics.queued) == (1.0, 9.0, 0.0)
    timings = {a: Timings(2.0, 3.0, 4.0, 5.0), b: Timings(2.5, 3.5, 4.5, 12.0)}
    last = front.step({a: [38], b: [38]}, finish_reason={a: "length", b: "length"}, timings=timings)[0][0]
    seen = last.metrics
    assert (seen.queued, seen.scheduled, seen.first_token, seen.last_token) == (2.0, 3.0, 4.0, 12.0)
    assert first.metrics.queued == 0.0  # an earlier output keeps what it said


def test_a_byte_tokenizer(byte_front: Front) -> None:
    (req_id,) = byte_front.add(prompt=[65], stop=["é!"], output_kind=DELTA)
    news: Callable[[list[int]], Any] = lambda ids: byte_front.step({req_id: ids})[0][0].outputs[0].text  # noqa: E731
    assert [news([i]) for i in "aé?".encode()] == ["a", "", "", "é?"]
    outputs, _ = byte_front.step({req_id: [EOS]}, finish_reason={req_id: "stop"})
    assert (outputs[0].outputs[0].text, outputs[0].outputs[0].token_ids) == ("", [EOS])
