"""Stage 3 on a CUDA GPU: prefix cache, grammars and speculation with compiled kernels, beside stage 2's graphs."""

import re

import pytest

from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage3.llm import LLM

pytestmark = pytest.mark.gpu

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 256, "dtype": "float32", "device": "cuda"}
LOOP = [5, 6, 7, 8, 9, 10, 11] * 6
PROMPTS = [{"prompt_token_ids": [*LOOP[i:], i]} for i in range(5)]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=60, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=50, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, top_k=5, max_tokens=60, ignore_eos=True),
    SamplingParams(temperature=0.5, seed=3, top_p=0.6, min_p=0.01, max_tokens=40, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=4, repetition_penalty=1.2, max_tokens=60, ignore_eos=True),
]
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


def tokens(outputs) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize("config", [None, NGRAM])
def test_cold_and_warm_with_and_without_drafts_the_tokens_are_stage_1s(config) -> None:
    with stage1_llm.LLM(**TINY) as plain:
        expected = tokens(plain.generate(PROMPTS, PARAMS))
    with LLM(**TINY, num_gpu_blocks_override=64, max_num_seqs=8, speculative_config=config) as llm:
        assert tokens(llm.generate(PROMPTS, PARAMS)) == expected
        warm = llm.generate(PROMPTS, PARAMS)
        stats = llm.core.stats()
    assert tokens(warm) == expected
    assert min(output.num_cached_tokens for output in warm) >= 32
    assert (stats.drafts > 0) == (config is not None)


def test_grammars_hold_beside_free_requests() -> None:
    guided = SamplingParams(temperature=1.0, seed=5, max_tokens=60, structured_outputs={"regex": r"[ab]{5}\d{3}"})
    settings = {"num_gpu_blocks_override": 64, "max_num_seqs": 8, "speculative_config": NGRAM}
    with LLM(**TINY, **settings) as llm:
        alone = tokens(llm.generate(PROMPTS[:2], PARAMS[:2]))
        mixed = llm.generate([*PROMPTS[:2], PROMPTS[2]], [*PARAMS[:2], guided])
    assert tokens(mixed)[:2] == alone
    assert re.fullmatch(r"[ab]{5}\d{3}", mixed[2].outputs[0].text)
