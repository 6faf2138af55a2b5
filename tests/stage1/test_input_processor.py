"""Prompts to requests: forms, limits, seeds, and what is refused."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stage1.input_processor import FIRST_STAGE, InputProcessor
from stage1.model.byte_tokenizer import BOS, ByteTokenizer
from stage1.params import SamplingParams
from stage1.seeds import child_seed, drawn_seed

F1 = "1, 2, 3, 4, 5,"
DEFAULT = SamplingParams()


@pytest.fixture
def smollm_inputs(smollm_source: Any, smollm_tokenizer: Any) -> InputProcessor:
    return InputProcessor(smollm_source, smollm_tokenizer)


@pytest.fixture
def short(smollm_source: Any, smollm_tokenizer: Any) -> InputProcessor:
    """Room for 32 tokens."""
    return InputProcessor(dataclasses.replace(smollm_source, max_model_len=32), smollm_tokenizer)


@pytest.fixture
def byte_inputs(smollm_source: Any) -> InputProcessor:
    """A tokenizer that adds BOS."""
    return InputProcessor(smollm_source, ByteTokenizer())


# --- forms of a prompt ----------------------------------------------------------------------------


def test_forms_of_a_prompt(smollm_inputs: InputProcessor, smollm_tokenizer: Any) -> None:
    ids = smollm_tokenizer.encode(F1)
    assert len(ids) == 14
    forms: list[tuple[Any, str | None]] = [
        (F1, F1),
        ({"prompt": F1}, F1),
        (ids, None),
        (tuple(ids), None),
        ({"prompt_token_ids": ids}, None),
        ({"prompt": "shown only", "prompt_token_ids": ids}, "shown only"),
    ]
    for form, text in forms:
        admission = smollm_inputs.process(form, DEFAULT, request_id="a")
        assert (admission.prompt, admission.prompt_ids) == (text, ids)
        assert [child.prompt_ids for child in admission.children] == [ids]


@pytest.mark.parametrize(
    "prompt",
    [
        *(
            "",
            [],
            None,
            [""],
            [[]],
            [[1, 2]],
            ["a", "b"],
            7,
            b"text",
            {},
            {"prompt": None},
            {"prompt": 3},
            {"text": "a"},
        ),
        *([1.5], [True], [None], [-1], [49152], [2**70], {"prompt_token_ids": "12"}, {"prompt": "a", "image": 1}),
        *("\ud800", "a\udfffb", {"prompt_token_ids": {}}, {1: 2}),
    ],
)
def test_bad_prompts(smollm_inputs: InputProcessor, prompt: Any) -> None:
    with pytest.raises(ValueError, match="prompt"):
        smollm_inputs.process(prompt, DEFAULT, request_id="a")


def test_special_tokens_are_added_on_request(byte_inputs: InputProcessor) -> None:
    assert byte_inputs.process("a", DEFAULT, request_id="a").prompt_ids == [BOS, 97]
    assert byte_inputs.process("a", DEFAULT, request_id="a", add_special_tokens=False).prompt_ids == [97]


def test_without_tokenizer(smollm_source: Any) -> None:
    inputs = InputProcessor(smollm_source, None)
    assert inputs.process([5, 6], DEFAULT, request_id="a").prompt_ids == [5, 6]
    with pytest.raises(ValueError, match="prompt_token_ids"):
        inputs.process("a", DEFAULT, request_id="a")


# --- lengths --------------------------------------------------------------------------------------


def test_length_of_the_prompt(short: InputProcessor) -> None:
    assert len(short.process([5] * 31, DEFAULT, request_id="a").prompt_ids) == 31
    for too_long in (32, 33, 1000):
        with pytest.raises(ValueError, match=rf"{too_long:,} tokens.*32.*max-model-len"):
            short.process([5] * too_long, DEFAULT, request_id="a")


def test_strict_length(short: InputProcessor) -> None:
    five = SamplingParams(max_tokens=5)
    with pytest.raises(ValueError, match=r"30 tokens and max_tokens is 5; max_model_len is 32.*to 2"):
        short.process([5] * 30, five, request_id="a", strict_length=True)
    assert short.process([5] * 30, five, request_id="a").params.max_tokens == 5
    assert short.process([5] * 27, five, request_id="a", strict_length=True)
    assert short.process([5] * 30, SamplingParams(max_tokens=None), request_id="a", strict_length=True)


def test_truncation_keeps_the_last_tokens(short: InputProcessor) -> None:
    def kept(keep: int, strict: bool = False) -> list[int]:
        params = SamplingParams(truncate_prompt_tokens=keep, max_tokens=4)
        return short.process(list(range(100)), params, request_id="a", strict_length=strict).prompt_ids

    assert kept(3) == [97, 98, 99]
    assert kept(-1) == list(range(69, 100))
    assert kept(-1, strict=True) == list(range(72, 100))
    with pytest.raises(ValueError, match="40 tokens"):
        kept(40)


def test_a_hostile_prompt_is_refused_before_it_is_tokenised(smollm_source: Any, smollm_tokenizer: Any) -> None:
    class Untouched:
        def __getattr__(self, name: str) -> Any:
            return getattr(smollm_tokenizer, name)

        def encode(self, *_: Any, **__: Any) -> list[int]:
            raise AssertionError("the tokenizer was run")

    inputs = InputProcessor(smollm_source, Untouched())
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"at least .* tokens .*8,192"):
        inputs.process("hello " * 3_000_000, DEFAULT, request_id="a")
    assert time.perf_counter() - start < 2
    with pytest.raises(ValueError, match=r"at least .* tokens"):
        inputs.render_chat([{"role": "user", "content": "hello " * 3_000_000}])


# --- the requests ---------------------------------------------------------------------------------


def test_children(smollm_inputs: InputProcessor) -> None:
    params = SamplingParams(n=3, seed=5, prompt_logprobs=1)
    admission = smollm_inputs.process(F1, params, request_id="r", arrival_time=12.5)
    assert admission.params is params
    assert admission.arrival_time == 12.5
    assert [child.params.seed for child in admission.children] == [5, 6, 7]
    assert [child.params.n for child in admission.children] == [1, 1, 1]
    assert [child.params.prompt_logprobs for child in admission.children] == [1, None, None]
    assert len({child.req_id for child in admission.children}) == 3
    assert all(child.arrival_time == 12.5 for child in admission.children)


def test_internal_ids_are_unique_even_where_the_users_are_not(smollm_inputs: InputProcessor) -> None:
    two = SamplingParams(n=2)

    def admit(request_id: str) -> list[str]:
        return [child.req_id for child in smollm_inputs.process([5], two, request_id=request_id).children]

    with ThreadPoolExecutor(8) as pool:
        ids = [req_id for group in pool.map(admit, ["r", "r-0", "r-1", "r-0-1"] * 50) for req_id in group]
    assert len(set(ids)) == len(ids) == 400


def test_seeds(smollm_source: Any, smollm_tokenizer: Any) -> None:
    def seeds(engine_seed: int) -> list[int | None]:
        inputs = InputProcessor(smollm_source, smollm_tokenizer, seed=engine_seed)
        return [inputs.process([5], DEFAULT, request_id="r").children[0].params.seed for _ in range(50)]

    assert seeds(0) == seeds(0)
    assert len({*seeds(0), *seeds(1)}) == 100
    # Published outputs of splitmix64 from seed 1234567.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [drawn_seed(1234567, i) % 2**64 for i in range(4)] == known
    assert child_seed(2**63 - 1, 1) == -(2**63)
    largest = SamplingParams(n=2, seed=2**63 - 1)
    inputs = InputProcessor(smollm_source, smollm_tokenizer)
    assert inputs.process([5], largest, request_id="r").children[1].params.seed == -(2**63)


def test_eos_comes_from_model_and_tokenizer(smollm_source: Any, smollm_tokenizer: Any) -> None:
    source = dataclasses.replace(smollm_source, eos_token_ids=(0, 49_152))
    inputs = InputProcessor(source, smollm_tokenizer)
    assert inputs.process([5], DEFAULT, request_id="r").children[0].params.eos_token_ids == [0, 2]
    bare = InputProcessor(dataclasses.replace(smollm_source, eos_token_ids=()), None)
    assert bare.process([5], DEFAULT, request_id="r").children[0].params.eos_token_ids == []


def test_bad_words_with_and_without_a_space(smollm_inputs: InputProcessor) -> None:
    def ids(*words: str) -> list[list[int]]:
        params = SamplingParams(bad_words=list(words))
        return smollm_inputs.process([5], params, request_id="r").children[0].params.bad_words_ids

    assert ids("beautiful") == [[1425, 44682], [3953]]
    assert ids(" beautiful", "beautiful") == [[1425, 44682], [3953]]
    assert [7042] in ids("Paris")
    assert ids(" ") != []
    with pytest.raises(ValueError, match="bad_words"):
        ids("\x04")  # no token of SmolLM2


def test_the_vocabulary_is_checked(smollm_inputs: InputProcessor) -> None:
    wrong: list[dict[str, Any]] = [
        *({"logprobs": 21}, {"prompt_logprobs": -1}, {"logit_bias": {49152: 1.0}}),
        *({"allowed_token_ids": [49152]}, {"stop_token_ids": [49152]}),
    ]
    for fields in wrong:
        with pytest.raises(ValueError, match=next(iter(fields))):
            smollm_inputs.process([5], SamplingParams(**fields), request_id="r")


@pytest.mark.parametrize("name", FIRST_STAGE)
def test_features_of_later_stages_are_refused_by_name(smollm_source: Any, name: str) -> None:
    values: dict[str, Any] = {
        "priority": 1,
        "cache_salt": "salt",
        "kv_transfer_params": {"do_remote_decode": True},
        "data_parallel_rank": 0,
    }
    params = SamplingParams(structured_outputs={"choice": ["a"]}) if name == "structured_outputs" else DEFAULT
    fields = {name: values[name]} if name in values else {}
    with pytest.raises(ValueError, match=rf"{name} .* stage {FIRST_STAGE[name]}"):
        InputProcessor(smollm_source, None).process([5], params, request_id="r", **fields)
    wide = InputProcessor(smollm_source, None, supported=frozenset({name}))
    child = wide.process([5], params, request_id="r", **fields).children[0]
    for field, value in fields.items():
        assert getattr(child, field) == value


@pytest.mark.parametrize(
    "fields",
    [
        *({"cache_salt": ""}, {"cache_salt": 5}, {"priority": 1.5}, {"priority": True}, {"data_parallel_rank": -1}),
        *({"kv_transfer_params": [1]}, {"request_id": ""}),
    ],
)
def test_malformed_fields(smollm_source: Any, fields: dict[str, Any]) -> None:
    inputs = InputProcessor(smollm_source, None, supported=frozenset(FIRST_STAGE))
    with pytest.raises(ValueError, match=next(iter(fields))):
        inputs.process([5], DEFAULT, **{"request_id": "r", **fields})
