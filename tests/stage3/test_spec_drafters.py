"""Drafters with weights in the engine: plain decoding's tokens whatever they guess, and guesses that see it all."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from sixfold.exercises.importer import load_file
from stage1.params import SamplingParams
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2.llm import LLM as PagedLLM
from stage3.llm import LLM
from stage3.spec import drafters

bed = load_file(Path(__file__).with_name("heads_bed.py"))

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 160, "dtype": "float32"}
requests = load_file(Path(__file__).with_name("requests_bed.py"))
LOOP, PROMPTS, PARAMS, tokens = requests.LOOP, requests.PROMPTS, requests.PARAMS, requests.tokens
METHODS = ["medusa", "eagle", "draft_model"]


@pytest.fixture(scope="module")
def configs(tmp_path_factory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("heads")
    bed.write_heads(folder, "medusa")
    bed.write_heads(folder, "eagle")
    return {
        "medusa": {"method": "medusa", "num_speculative_tokens": 3, "model": str(folder)},
        "eagle": {"method": "eagle", "num_speculative_tokens": 3, "model": str(folder / "eagle.safetensors")},
        "draft_model": {"model": "tiny", "num_speculative_tokens": 3},
    }


@pytest.fixture(scope="module")
def expected() -> list:
    with PagedLLM(**TINY) as llm:
        return llm.generate(PROMPTS, PARAMS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"enable_prefix_caching": False, "block_size": 1},
        {"max_num_seqs": 3, "max_num_batched_tokens": 9, "block_size": 5},
        {"num_gpu_blocks_override": 26, "block_size": 8, "max_num_seqs": 7},  # preempts
        {"disable": 2},
    ],
)
def test_drafts_change_no_token(method, settings, configs, expected) -> None:
    sink = MemorySink()
    config, settings = dict(configs[method]), dict(settings)
    if "disable" in settings:
        config["disable_by_batch_size"] = settings.pop("disable")
    with LLM(**{**TINY, **settings}, speculative_config=config, sinks=[sink]) as llm:
        outputs = llm.generate(PROMPTS, PARAMS)
        stats = llm.core.stats()
    assert tokens(outputs) == tokens(expected)
    assert stats.drafts > 0
    assert stats.kv_usage == 0.0
    assert check_trace(Trace(sink.events)) == []


@pytest.mark.parametrize("settings", [{}, {"block_size": 2, "max_num_batched_tokens": 20}, {"block_size": 16}])
def test_a_model_that_drafts_for_itself_is_always_right(settings, configs) -> None:
    """Every position of its cache is filled, in chunks, on prefix hits, and where all drafts were accepted."""
    greedy = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    with LLM(**TINY, **settings, max_num_seqs=4, speculative_config=configs["draft_model"]) as llm:
        for _ in range(2):  # cold and warm
            llm.generate(PROMPTS[:4], greedy)
        stats = llm.core.stats()
    assert stats.prefix_hits > 0
    assert sum(stats.accepted_per_position) >= 0.97 * stats.drafts  # all but those behind a request's end
    assert stats.drafts > 4 * 2 * 40


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_guided_requests_hold_their_grammar_beside_free_ones(method, drawn, configs) -> None:
    guided = SamplingParams(temperature=0.9, seed=9, max_tokens=40, structured_outputs={"regex": r"([ab]c?){6}\d{4}"})
    greedy = SamplingParams(temperature=0, max_tokens=40, structured_outputs={"choice": ["seven", "several"]})
    free = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    with PagedLLM(**TINY) as llm:
        expected = tokens(llm.generate(PROMPTS[2], free))
    config = configs[method] | ({"rejection_sample_method": "probabilistic"} if drawn else {})
    with LLM(**TINY, speculative_config=config) as llm:
        outputs = llm.generate(PROMPTS[:3], [guided, greedy, free])
        assert llm.core.stats().drafts > 25
    assert re.fullmatch(r"([ab]c?){6}\d{4}", outputs[0].outputs[0].text)
    assert outputs[1].outputs[0].text in ("seven", "several")
    assert tokens(outputs[2:]) == expected


@pytest.mark.parametrize(("model_len", "size"), [(50, 6), (64, 3)])
def test_no_draft_passes_the_longest_length(model_len, size, configs) -> None:
    settings = {**TINY, "max_model_len": model_len, "num_gpu_blocks_override": 64, "block_size": size}
    for method in METHODS:
        with LLM(**settings, speculative_config=configs[method]) as llm:
            output = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=500, ignore_eos=True))[0]
            assert len(output.outputs[0].token_ids) == model_len - len(PROMPTS[0]["prompt_token_ids"])
            assert output.outputs[0].finish_reason == "length"


def test_a_draft_model_with_fewer_positions_stops_there(configs, monkeypatch) -> None:
    resolve = drafters.resolve_draft
    monkeypatch.setattr(drafters, "resolve_draft", lambda *args: replace(resolve(*args), max_model_len=60))
    greedy = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    with PagedLLM(**TINY) as llm:
        expected = tokens(llm.generate(PROMPTS[0], greedy))
    with LLM(**TINY, speculative_config=configs["draft_model"]) as llm:
        assert tokens(llm.generate(PROMPTS[0], greedy)) == expected
        stats = llm.core.stats()
    assert 0 < stats.drafts <= 60 - len(PROMPTS[0]["prompt_token_ids"])
    assert sum(stats.accepted_per_position) == stats.drafts, "the last ones too: it is its own model"


@pytest.mark.parametrize("method", ["eagle", "draft_model"])
def test_a_warm_prefix_gives_the_guesses_of_a_cold_one(method, configs) -> None:
    """The same guesses, right or wrong: what the drafter reads of a cached block is what it would have computed."""
    greedy = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    seen = []
    with LLM(**TINY, block_size=4, speculative_config=configs[method]) as llm:
        for other in range(3):  # the third finds blocks of the first two; what followed them there were other tokens
            sink = Watching(llm)
            llm.generate({"prompt_token_ids": [*LOOP[:32], 40 + other]}, greedy)
            seen.append(sink.drafts())
        llm.reset_prefix_cache()
        cold = Watching(llm)
        llm.generate({"prompt_token_ids": [*LOOP[:32], 42]}, greedy)
    assert seen[2] == cold.drafts()
    assert len(cold.drafts()) >= 10


class Watching:
    """The drafts of every plan of an engine, from now on."""

    def __init__(self, llm: LLM) -> None:
        self._seen: list[list[int]] = []
        executor = llm.core.executor
        submit = executor.submit
        executor.submit = lambda plan: (self._seen.extend(plan.drafts.values()), submit(plan))[1]

    def drafts(self) -> list[list[int]]:
        return list(self._seen)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": "other"}, "format 'other'"),
        ({"method": "medusa"}, "holds medusa heads"),
        ({"hidden_size": "576", "target": "another"}, "trained for another, with hidden_size 576; this model has 64"),
        ({"intermediate_size": "96"}, "train the heads anew"),
    ],
)
def test_heads_of_another_model_are_refused(changed, message, tmp_path) -> None:
    bed.write_heads(tmp_path, "eagle", changed)
    with pytest.raises(ValueError, match=message):
        LLM(**TINY, speculative_config={"method": "eagle", "num_speculative_tokens": 2, "model": str(tmp_path)})


def test_more_drafts_than_heads_are_refused(configs) -> None:
    with pytest.raises(ValueError, match="num_speculative_tokens is 5; there are 4 Medusa heads"):
        LLM(**TINY, speculative_config={**configs["medusa"], "num_speculative_tokens": 5})


def test_a_draft_model_with_another_vocabulary_is_refused() -> None:
    config = {"method": "draft_model", "model": "smollm2-135m", "num_speculative_tokens": 2}
    with pytest.raises(ValueError, match="a vocabulary of 49,152 tokens and tiny has 264"):
        LLM(**TINY, speculative_config=config)
