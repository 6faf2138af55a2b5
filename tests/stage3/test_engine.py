"""Stage 3's engine against stage 2's: the same tokens with a cold and a warm prefix cache, and what may be shared."""

import asyncio

import pytest

from stage1.params import SamplingParams
from stage1.server.serve import serve_in_thread
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2.llm import LLM as PagedLLM
from stage3.llm import LLM, AsyncLLM
from stage3.prefix.reset_route import reset_router

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 128, "dtype": "float32"}
SHARED = [(7 * i) % 250 for i in range(50)]
PROMPTS = [{"prompt_token_ids": [*SHARED, i, i + 1, i + 2]} for i in range(5)]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=20, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, top_k=7, max_tokens=25, ignore_eos=True),
    SamplingParams(temperature=1.2, seed=3, top_p=0.7, repetition_penalty=1.3, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=0, frequency_penalty=0.5, max_tokens=30, ignore_eos=True, logprobs=2),
]


def tokens(outputs) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def cached(outputs) -> list[int | None]:
    return [output.num_cached_tokens for output in outputs]


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    with PagedLLM(**TINY) as llm:
        return tokens(llm.generate(PROMPTS, PARAMS))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block_size": 5, "max_num_batched_tokens": 7, "max_num_seqs": 3},
        {"block_size": 8, "num_gpu_blocks_override": 16, "max_num_seqs": 5},  # preempts, evicts
        {"enable_prefix_caching": False},
    ],
)
def test_a_warm_cache_changes_no_token(settings, expected) -> None:
    sink = MemorySink()
    with LLM(**{**TINY, **settings}, sinks=[sink]) as llm:
        cold, warm = llm.generate(PROMPTS, PARAMS), llm.generate(PROMPTS, PARAMS)
        assert llm.core.stats().kv_usage == 0.0
    assert tokens(cold) == tokens(warm) == expected
    assert check_trace(Trace(sink.events)) == []
    if settings.get("enable_prefix_caching") is False:
        assert set(cached(warm)) == {None}
    elif "num_gpu_blocks_override" not in settings:
        size = settings.get("block_size", 16)
        assert cached(warm) == [(len(p["prompt_token_ids"]) - 1) // size * size for p in PROMPTS]


def test_salts_keep_apart_and_reset_forgets() -> None:
    salted = [{**prompt, "cache_salt": "a"} for prompt in PROMPTS]
    with LLM(**TINY) as llm:
        llm.generate(PROMPTS, PARAMS)
        assert set(cached(llm.generate(salted, PARAMS))) == {0}
        assert set(cached(llm.generate(salted, PARAMS))) == {48}
        assert llm.reset_prefix_cache()
        assert cached(llm.generate(PROMPTS[:1], PARAMS[0])) == [0]
    with pytest.raises(ValueError, match="cache_salt"), LLM(**TINY, enable_prefix_caching=False) as llm:
        llm.generate(salted, PARAMS)


def test_the_server_tells_of_hits_and_resets_between_requests() -> None:
    import httpx

    llm = AsyncLLM(**TINY)
    body = {"prompt": SHARED, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    try:
        with serve_in_thread(llm, (reset_router(),)) as address, httpx.Client(base_url=address) as http:
            first, second = (http.post("/v1/completions", json=body).json() for _ in range(2))
            assert first["choices"] == second["choices"]
            assert "vllm:prefix_cache_hits_total{" in http.get("/metrics").text
            assert 'engine="0"} 48.0' in http.get("/metrics").text
            assert http.post("/reset_prefix_cache").json() == {"reset": True}
            http.post("/v1/completions", json={**body, "cache_salt": "x"})
            assert 'engine="0"} 48.0' in http.get("/metrics").text, "nothing more was found"
        assert asyncio.run(llm.stats()).prefix_hits == 48
    finally:
        llm.shutdown()
