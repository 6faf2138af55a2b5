"""Speculation in the engine: plain decoding's tokens for any batch, chunking, pool and cache; fewer steps on copies."""

from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2.llm import LLM as PagedLLM
from stage3.llm import LLM

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 160, "dtype": "float32"}
bed = load_file(Path(__file__).with_name("requests_bed.py"))
PROMPTS, PARAMS, NGRAM, tokens = bed.PROMPTS, bed.PARAMS, bed.NGRAM, bed.tokens


@pytest.fixture(scope="module")
def expected() -> list:
    with PagedLLM(**TINY) as llm:
        return llm.generate(PROMPTS, PARAMS)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enable_prefix_caching": False, "block_size": 1},
        {"max_num_seqs": 3, "max_num_batched_tokens": 9, "block_size": 5},
        {"num_gpu_blocks_override": 26, "block_size": 8, "max_num_seqs": 7},  # preempts
        {"max_num_seqs": 7, "max_num_batched_tokens": 7},  # no token is spare for a draft
    ],
)
def test_drafts_change_no_token(settings, expected) -> None:
    sink = MemorySink()
    with LLM(**{**TINY, **settings}, speculative_config=NGRAM, sinks=[sink]) as llm:
        outputs = llm.generate(PROMPTS, PARAMS)
        stats = llm.core.stats()
    assert tokens(outputs) == tokens(expected)
    assert [o.outputs[0].finish_reason for o in outputs] == [o.outputs[0].finish_reason for o in expected]
    assert (stats.drafts > 0) == (settings.get("max_num_batched_tokens") != 7)
    assert (stats.preemptions > 0) == ("num_gpu_blocks_override" in settings)
    assert stats.kv_usage == 0.0
    assert check_trace(Trace(sink.events)) == []
    for ours, theirs in zip(outputs[5].outputs[0].logprobs, expected[5].outputs[0].logprobs, strict=True):
        assert {k: v.rank for k, v in ours.items()} == {k: v.rank for k, v in theirs.items()}


def test_a_budget_without_room_for_drafts_is_said(caplog) -> None:
    with LLM(**TINY, max_num_seqs=7, max_num_batched_tokens=7, speculative_config=NGRAM):
        assert "leaves no token for drafts" in caplog.text


def test_of_a_large_batch_nothing_is_drafted(expected) -> None:
    with LLM(**TINY, speculative_config={**NGRAM, "disable_by_batch_size": 2}) as llm:
        assert tokens(llm.generate(PROMPTS[:4], PARAMS[:4])) == tokens(expected)[:4]
        few = llm.core.stats().drafts
        llm.generate(PROMPTS[:1], PARAMS[:1])
        assert llm.core.stats().drafts > few


def test_text_that_copies_itself_takes_fewer_steps() -> None:
    copying = "The cat sat on the mat. The dog sat on the log. " * 3 + "The cat sat on the mat."
    greedy = SamplingParams(temperature=0, max_tokens=24)
    texts, steps = [], []
    for config in (None, {**NGRAM, "prompt_lookup_min": 2}):
        with LLM(max_model_len=256, dtype="float32", speculative_config=config) as llm:
            texts.append(llm.generate(copying, greedy)[0].outputs[0].text)
            steps.append(llm.core.stats().step)
    assert (
        texts[0] == texts[1] == " The dog sat on the log. The cat sat on the mat. The dog sat on the log. The cat sat"
    )
    assert steps[1] < 0.6 * steps[0]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "must be a JSON object"),
        (
            '{"method": "eagle3", "num_speculative_tokens": 2}',
            "'eagle3'; choose ngram, draft_model, medusa, eagle",
        ),
        ('{"method": "draft_model", "num_speculative_tokens": 2}', "no model"),
        ('{"method": "eagle", "num_speculative_tokens": 2, "model": "/nowhere"}', "there is no /nowhere"),
        ('{"method": "ngram", "num_speculative_tokens": 65}', "at most 64"),
        (
            '{"method": "ngram", "num_speculative_tokens": 2, "latest": "False"}',
            "latest 'False'; it must be",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 2, "model": "tiny"}',
            "model: the method ngram has",
        ),
        (
            '{"model": "tiny", "num_speculative_tokens": 2, "prompt_lookup_max": 2}',
            "prompt_lookup_max: the",
        ),
        ('{"model": "tiny", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 2}', "on one GPU"),
        ('{"method": "ngram"}', "no num_speculative_tokens"),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "num_speculative_tokens 0"),
        ('{"method": "ngram", "num_speculative_tokens": 2, "window": 3}', "unknown keys window"),
        ('{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 4, "prompt_lookup_max": 3}', "lower"),
    ],
)
def test_wrong_configurations_say_what_is_wrong(config, message) -> None:
    with pytest.raises(ValueError, match=message):
        LLM(**TINY, speculative_config=config)
