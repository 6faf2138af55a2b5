"""Stage 2 on a CUDA GPU: compiled kernels in the engine, and the memory that the cache takes."""

import pytest
import torch

from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage2.llm import LLM

pytestmark = pytest.mark.gpu

PROMPTS = [{"prompt_token_ids": [(7 * i + 3 * j) % 250 for j in range(5 + 19 * i)]} for i in range(6)]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=24, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, top_k=7, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=1.2, seed=3, top_p=0.7, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=4, min_p=0.1, repetition_penalty=1.2, max_tokens=30, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=5, logit_bias={7: 3.0}, presence_penalty=1.0, max_tokens=16, ignore_eos=True),
]
TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 256, "dtype": "float32", "device": "cuda"}


def tokens(outputs) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize(
    "settings",
    [
        {"num_gpu_blocks_override": 64},
        {"num_gpu_blocks_override": 16, "max_num_batched_tokens": 48, "max_num_seqs": 4},
        {"num_gpu_blocks_override": 64, "block_size": 64, "max_num_batched_tokens": 33, "max_num_seqs": 6},
    ],
)
def test_compiled_kernels_give_the_plain_engines_tokens(settings) -> None:
    with stage1_llm.LLM(**TINY) as plain:
        expected = tokens(plain.generate(PROMPTS, PARAMS))
    with LLM(**{**TINY, **settings}) as llm:
        assert llm.core.executor._runner._attention.__class__.__name__ == "TritonAttention"
        assert tokens(llm.generate(PROMPTS, PARAMS)) == expected


def test_the_real_model_counts_in_bfloat16() -> None:
    with LLM(max_model_len=512, gpu_memory_utilization=0.2, max_num_batched_tokens=256) as llm:
        out = llm.generate(["1, 2, 3, 4, 5,"] * 12, SamplingParams(temperature=0, max_tokens=24))
    assert {o.outputs[0].text for o in out} == {" 6, 7, 8, 9, 10, 11, 12,"}


def test_the_cache_fills_what_the_share_allows() -> None:
    share = 0.3
    with LLM("qwen3-0.6b", load_format="dummy", max_model_len=4096, gpu_memory_utilization=share) as llm:
        free, total = torch.cuda.mem_get_info()
        cache = llm.core.executor._runner._attention._kv_cache
        cache_bytes = sum(layer.nbytes for layer in cache.layers)
        weights = sum(p.nbytes for p in llm.core.executor._runner._model.parameters())
    assert total - free <= share * total
    assert cache_bytes >= 0.9 * (share * total - weights)
