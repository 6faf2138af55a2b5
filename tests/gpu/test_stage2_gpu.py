"""Stage 2 on a CUDA GPU: compiled kernels and captured graphs in the engine, and the memory that the cache takes."""

import logging
from dataclasses import replace

import pytest
import torch

from stage1 import llm as stage1_llm
from stage1.params import SamplingParams
from stage2 import graphs
from stage2.graphs import StepGraphs
from stage2.kernels.step_inputs import TritonInputs
from stage2.llm import LLM
from stage2.parts import Parts

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
        {"num_gpu_blocks_override": 64, "enforce_eager": True},
    ],
)
def test_compiled_kernels_give_the_plain_engines_tokens(settings) -> None:
    with stage1_llm.LLM(**TINY) as plain:
        expected = tokens(plain.generate(PROMPTS, PARAMS))
    with LLM(**{**TINY, **settings}) as llm:
        assert llm.core.executor._runner._attention.__class__.__name__ == "TritonAttention"
        assert tokens(llm.generate(PROMPTS, PARAMS)) == expected
        assert tokens(llm.generate(PROMPTS[2:4], PARAMS[:2])) == tokens(llm.generate(PROMPTS[2:4], PARAMS[:2]))


@pytest.fixture
def replays(monkeypatch) -> list:
    """The sizes of the graphs that are replayed."""
    seen = []
    find = StepGraphs.find

    def spy(self, *size):
        graph = find(self, *size)
        seen.append(None if graph is None else graph.size)
        return graph

    monkeypatch.setattr(StepGraphs, "find", spy)
    return seen


class Poisoned(TritonInputs):
    """Fills every input with other numbers first, inside a captured graph too: a stale row would be seen."""

    def fill(self, batch) -> None:
        for tensor in (batch.input_ids, batch.positions, batch.query_start, batch.seq_lens, batch.few_lens):
            tensor.fill_(3)
        for tensor in (batch.slot_mapping, batch.logits_rows, batch.draws, batch.draw_positions, batch.seeds):
            tensor.fill_(5)
        batch.block_table.fill_(1)
        batch.temperature.fill_(7.0)
        super().fill(batch)


def test_no_stale_input_is_read(replays) -> None:
    settings = {**TINY, "num_gpu_blocks_override": 64, "max_num_batched_tokens": 64, "max_num_seqs": 8}
    with LLM(**settings) as llm:
        expected = tokens(llm.generate(PROMPTS, PARAMS))
    with LLM(**settings, parts=replace(Parts(), inputs=Poisoned)) as llm:
        replays.clear()  # of the warm-up
        assert tokens(llm.generate(PROMPTS, PARAMS)) == expected
    sizes = {size for size in replays if size is not None}
    assert any(size.num_chunks for size in sizes), "mixed steps were replayed"
    assert any(not size.num_chunks for size in sizes), "decode steps were replayed"


def test_plain_requests_are_drawn_inside_the_graph_and_others_behind_it(replays) -> None:
    with LLM(**TINY, num_gpu_blocks_override=64) as llm:
        sampler = llm.core.executor._runner._sampler
        calls = []
        draw = sampler.sample
        replays.clear()  # of the warm-up
        sampler.sample = lambda logits, batch: calls.append(len(batch.states)) or draw(logits, batch)
        llm.generate(PROMPTS[:2], PARAMS[:2])
        assert calls == [], "both are greedy or have only a temperature"
        llm.generate(PROMPTS[:3], PARAMS[:3])
        assert calls, "top-k is not in the graph"
    assert None not in replays


def test_out_of_memory_at_capture_leaves_out_the_sizes_that_do_not_fit(monkeypatch, caplog) -> None:
    capture = graphs.capture_step

    def small_ones_only(size, *args):
        if size.num_tokens > 4:
            raise torch.OutOfMemoryError
        return capture(size, *args)

    monkeypatch.setattr(graphs, "capture_step", small_ones_only)
    with stage1_llm.LLM(**TINY) as plain:
        expected = tokens(plain.generate(PROMPTS, PARAMS))
    with caplog.at_level(logging.WARNING), LLM(**TINY, num_gpu_blocks_override=64, max_num_seqs=16) as llm:
        assert tokens(llm.generate(PROMPTS, PARAMS)) == expected
        captured = llm.core.executor._runner._graphs._decode
        assert sorted({graph.size.num_reqs for graph in captured}) == [1, 2, 4]
    assert "graphs are left out" in caplog.text


def test_not_a_number_ends_that_request_alone() -> None:
    with LLM(**TINY, num_gpu_blocks_override=64, enforce_eager=True) as llm:
        good = tokens(llm.generate(PROMPTS[:1], PARAMS[:1]))
        embedding = llm.core.executor._runner._model.embed_tokens
        broken = embedding.weight.clone()  # the projection to logits keeps the weights that it shared
        broken[255] = torch.nan
        embedding.weight = torch.nn.Parameter(broken, requires_grad=False)
        llm.core.executor.call("capture_graphs")
        outputs = llm.generate([PROMPTS[0], {"prompt_token_ids": [1, 255, 2]}], PARAMS[:2])
    assert outputs[0].outputs[0].token_ids == good[0]
    assert outputs[1].outputs[0].finish_reason == "error"


def test_the_real_model_counts_in_bfloat16() -> None:
    with LLM(max_model_len=512, gpu_memory_utilization=0.2, max_num_batched_tokens=256) as llm:
        out = llm.generate(["1, 2, 3, 4, 5,"] * 12, SamplingParams(temperature=0, max_tokens=24))
    assert {o.outputs[0].text for o in out} == {" 6, 7, 8, 9, 10, 11, 12,"}


def test_the_cache_fills_what_the_share_allows() -> None:
    share = 0.3
    with LLM("qwen3-0.6b", load_format="dummy", max_model_len=4096, gpu_memory_utilization=share) as llm:
        free, total = torch.cuda.mem_get_info()
        cache = llm.core.executor._runner._attention.kv_cache
        cache_bytes = sum(layer.nbytes for layer in cache.layers)
        weights = sum(p.nbytes for p in llm.core.executor._runner._model.parameters())
    assert total - free <= share * total
    assert cache_bytes >= 0.9 * (share * total - weights)


TEXTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "def add(a, b):\n    return",
    "Once upon a time, there was a",
    "The quick brown fox jumps over the lazy dog, and then",
    "To make bread you need flour,",
]
MARGIN = 0.5  # between the best two log-probabilities; below it bfloat16 may choose the other


def test_bfloat16_takes_float32s_token_wherever_the_margin_is_clear() -> None:
    """What the engine wrote is read again in float32 by stage 1: the oracle sees the very same contexts."""
    greedy = SamplingParams(temperature=0, max_tokens=48, logprobs=0)
    with LLM(max_model_len=256, gpu_memory_utilization=0.2, max_num_batched_tokens=128) as llm:
        outputs = llm.generate(TEXTS, greedy)
        assert tokens(llm.generate(TEXTS, greedy.replace(logprobs=None))) == tokens(outputs), "drawn inside the graph"
    written = [{"prompt_token_ids": [*o.prompt_token_ids, *o.outputs[0].token_ids]} for o in outputs]
    with stage1_llm.LLM(max_model_len=256, dtype="float32", device="cuda") as reference:
        read = reference.generate(written, SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=2))
    differences, clear, unclear = [], 0, 0
    for output, again in zip(outputs, read, strict=True):
        start = len(output.prompt_token_ids)
        for i, token in enumerate(output.outputs[0].token_ids):
            row = again.prompt_logprobs[start + i]
            best, second = sorted((entry.logprob for entry in row.values()), reverse=True)[:2]
            if best - second > MARGIN:
                clear += 1
                assert row[token].rank == 1
            else:
                unclear += 1
            differences.append(abs(row[token].logprob - output.outputs[0].logprobs[i][token].logprob))
    assert clear > unclear, f"{unclear} ties of {clear + unclear}"
    assert max(differences) < MARGIN
    assert sum(differences) / len(differences) < 0.1
