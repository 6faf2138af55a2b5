"""The prefix cache under a model: what is read back gives the tokens and log-probabilities of a cold run."""

import pytest

from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2.llm import LLM
from stage2.parts import Parts
from stage2.scheduler import ContinuousScheduler
from stage3.prefix.kv_manager import PrefixKVManager
from stage3.prefix.scheduler import PrefixScheduler

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 128, "dtype": "float32"}
STEM = [(7 * i) % 250 for i in range(50)]
PROMPTS = [
    {"prompt_token_ids": [*STEM[: 10 * i], *[(11 * i + 5 * j) % 250 for j in range(1 + 7 * i)]]} for i in range(6)
]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=8, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, top_k=7, max_tokens=11, ignore_eos=True),
    SamplingParams(temperature=1.2, seed=3, top_p=0.7, repetition_penalty=1.3, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=1, prompt_logprobs=1),
    SamplingParams(temperature=0, frequency_penalty=0.5, max_tokens=10, ignore_eos=True, logprobs=1),
]


def cached_parts() -> Parts:
    """Stage 2's parts with the prefix cache among them."""
    managers = []

    def make_kv(pool, block_size):
        managers.append(PrefixKVManager(pool, block_size))
        return managers[0]

    def make_scheduler(*args):
        return PrefixScheduler(ContinuousScheduler(*args), managers[0])

    return Parts(kv_manager=make_kv, scheduler=make_scheduler)


@pytest.fixture(scope="module")
def expected() -> list:
    with stage1_llm.LLM(**TINY, max_num_seqs=1) as llm:
        return llm.generate(PROMPTS, PARAMS)


def values(rows) -> list[float]:
    return [entry.logprob for row in rows or () if row is not None for entry in row.values()]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block_size": 5, "max_num_batched_tokens": 17, "max_num_seqs": 3},
        {"block_size": 4, "num_gpu_blocks_override": 36, "max_num_seqs": 6},  # preempts, and forgets much
    ],
)
def test_a_warm_cache_changes_nothing_but_the_work(settings, expected) -> None:
    sink = MemorySink()
    with LLM(**{**TINY, **settings}, parts=cached_parts(), sinks=[sink]) as llm:
        rounds = [llm.generate(PROMPTS, PARAMS) for _ in range(2)]
        stats = llm.core.stats()
        assert llm.core.scheduler.reset_prefix_cache()
        rounds.append(llm.generate(PROMPTS[:1], PARAMS[:1]))
    for outputs in rounds:
        for ours, theirs in zip(outputs, expected, strict=False):
            assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids
            assert len(ours.prompt_logprobs or ()) == len(theirs.prompt_logprobs or ())
            assert values(ours.prompt_logprobs) == pytest.approx(values(theirs.prompt_logprobs), abs=1e-4)
            assert values(ours.outputs[0].logprobs) == pytest.approx(values(theirs.outputs[0].logprobs), abs=1e-4)
    cached = [[output.num_cached_tokens for output in outputs] for outputs in rounds]
    size = settings.get("block_size", 16)
    if "num_gpu_blocks_override" in settings:
        assert stats.preemptions > 0
        assert sum(cached[1]) > 0
    else:
        most = [(len(prompt["prompt_token_ids"]) - 1) // size * size for prompt in PROMPTS]
        most[4] = 0  # it asks for its prompt's log-probabilities
        assert cached[1] == most
    assert cached[2] == [0]
    assert stats.prefix_hits == sum(map(sum, cached))
    assert check_trace(Trace(sink.events)) == []
