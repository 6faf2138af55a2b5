"""Stage 2's engine against stage 1's: the same tokens for any block size, budget, chunking, pool and batch."""

import asyncio

import pytest

from stage1 import llm as stage1_llm
from stage1.params import RequestOutputKind, SamplingParams
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink
from stage2.llm import LLM, AsyncLLM

TINY = {"model": "tiny", "load_format": "dummy", "max_model_len": 128, "dtype": "float32"}
PROMPTS = [{"prompt_token_ids": [(11 * i + 5 * j) % 250 for j in range(3 + 13 * i)]} for i in range(6)]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=20, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, top_k=7, max_tokens=25, ignore_eos=True),
    SamplingParams(temperature=1.2, seed=3, top_p=0.7, repetition_penalty=1.3, max_tokens=9, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=4, min_p=0.1, presence_penalty=0.7, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=0, frequency_penalty=0.5, max_tokens=30, ignore_eos=True, logprobs=2, prompt_logprobs=1),
]


@pytest.fixture(scope="module")
def expected() -> list:
    with stage1_llm.LLM(**TINY, max_num_seqs=1) as llm:
        return llm.generate(PROMPTS, PARAMS)


def tokens(outputs) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"block_size": 1},
        {"block_size": 5, "max_num_batched_tokens": 7, "max_num_seqs": 3},
        {"block_size": 16, "max_num_batched_tokens": 128, "long_prefill_token_threshold": 9},
        {"block_size": 8, "num_gpu_blocks_override": 13, "max_num_seqs": 6},  # preempts
        {"block_size": 3, "num_gpu_blocks_override": 44, "max_num_batched_tokens": 6, "max_num_seqs": 6},
    ],
)
def test_any_division_gives_stage_1s_tokens(settings, expected) -> None:
    sink = MemorySink()
    with LLM(**{**TINY, **settings}, sinks=[sink]) as llm:
        outputs = llm.generate(PROMPTS, PARAMS)
        preemptions = llm.core.stats().preemptions
    assert tokens(outputs) == tokens(expected)
    assert (preemptions > 0) == ("num_gpu_blocks_override" in settings)
    assert check_trace(Trace(sink.events)) == []
    assert [len(row) for row in outputs[5].prompt_logprobs[1:]] == [len(row) for row in expected[5].prompt_logprobs[1:]]
    for ours, theirs in zip(outputs[5].prompt_logprobs[1:], expected[5].prompt_logprobs[1:], strict=True):
        assert {k: v.rank for k, v in ours.items()} == {k: v.rank for k, v in theirs.items()}


def test_the_real_model_counts() -> None:
    with LLM(max_model_len=512, dtype="float32", max_num_batched_tokens=16, max_num_seqs=8) as llm:
        out = llm.generate(["1, 2, 3, 4, 5,"] * 3, SamplingParams(temperature=0, max_tokens=24))
    assert {o.outputs[0].text for o in out} == {" 6, 7, 8, 9, 10, 11, 12,"}


def test_requests_join_and_leave_while_others_run() -> None:
    llm = AsyncLLM(**TINY, max_num_seqs=4)
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True, output_kind=RequestOutputKind.DELTA)

    async def collect(i: int, stop_after: int | None = None) -> list[int]:
        ids: list[int] = []
        stream = llm.generate(PROMPTS[i], params, request_id=str(i))
        async for output in stream:
            ids += output.outputs[0].token_ids
            if stop_after is not None and len(ids) >= stop_after:
                await stream.aclose()
        return ids

    async def main() -> list[list[int]]:
        tasks = []
        for i in range(6):
            tasks.append(asyncio.create_task(collect(i, 5 if i == 2 else None)))
            await asyncio.sleep(0.01)
        got = await asyncio.gather(*tasks)
        for _ in range(200):
            if (await llm.stats()).kv_usage == 0.0:
                break
            await asyncio.sleep(0.01)
        assert (await llm.stats()).kv_usage == 0.0
        return got

    try:
        got = asyncio.run(main())
    finally:
        llm.shutdown()
    with stage1_llm.LLM(**TINY) as static:
        alone = tokens(static.generate(PROMPTS, params))
    assert got[:2] + got[3:] == alone[:2] + alone[3:]
    assert got[2] == alone[2][: len(got[2])]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"block_size": 0}, "block_size"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"max_num_batched_tokens": 4, "max_num_seqs": 8}, "max_num_batched_tokens"),
        ({"kv_cache_memory_bytes": 1000}, r"room for 0 blocks.*needs 8"),
        ({"num_gpu_blocks_override": 0}, "choose 1 or more"),
        ({"block_size": 8, "attention_backend": "triton"}, "block_size is 8; the Triton kernels take 16 to 256"),
    ],
)
def test_wrong_settings_name_both_numbers(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        LLM(**{**TINY, **settings})


@pytest.mark.parametrize("settings", [{"max_num_batched_tokens": 24, "max_num_seqs": 3}])
def test_the_triton_backend_gives_stage_1s_tokens(settings, expected) -> None:
    """Interpreted on a CPU, compiled on a GPU; in float32 the tokens are the plain engine's."""
    short = [params.replace(max_tokens=3) for params in PARAMS[:3]]  # the interpreter is slow
    with LLM(**{**TINY, **settings}, attention_backend="triton") as llm:
        assert llm.core.executor._runner._attention.__class__.__name__ == "TritonAttention"
        outputs = llm.generate(PROMPTS[:3], short)
    assert tokens(outputs) == [ids[:3] for ids in tokens(expected)[:3]]


def test_an_interrupt_before_a_plan_arrives_leaves_every_row_free() -> None:
    """Ctrl-C at any moment: the next call has the whole engine."""
    settings = {"model": "tiny", "load_format": "dummy", "device": "cpu", "max_model_len": 64, "max_num_seqs": 2}
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    with LLM(**settings) as llm:
        expected = [out.outputs[0].token_ids for out in llm.generate([[1, 2], [3]], params)]
        submit = llm.core.executor.submit
        for number in range(1, 9):
            plans = []

            def interrupted(plan, number=number, plans=plans):
                plans.append(plan)
                if len(plans) == number:
                    raise KeyboardInterrupt
                return submit(plan)

            llm.core.executor.submit = interrupted
            with pytest.raises(KeyboardInterrupt):
                [llm.generate([[1, 2], [3]], params) for _ in range(2)]
            llm.core.executor.submit = submit
            assert [out.outputs[0].token_ids for out in llm.generate([[1, 2], [3]], params)] == expected
