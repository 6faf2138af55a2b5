"""The whole engine on the tiny random model: a request's tokens depend on nothing but itself."""

import math

import pytest
import torch

from stage1.llm import LLM
from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage1.trace.invariants import check_trace
from stage1.trace.reader import Trace
from stage1.trace.sinks import MemorySink

PROMPTS = [[5, 6, 7], [100] * 30, [9, 8, 7, 6, 5, 4, 3], [42], list(range(60, 110))]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=12),
    SamplingParams(temperature=1.0, seed=5, max_tokens=20, ignore_eos=True),
    SamplingParams(temperature=0.7, seed=6, top_k=5, max_tokens=3),
    SamplingParams(temperature=1.5, seed=7, top_p=0.8, repetition_penalty=1.3, max_tokens=9),
    SamplingParams(temperature=1.0, seed=8, min_p=0.05, presence_penalty=0.5, frequency_penalty=0.2, max_tokens=16),
]


def as_prompt(ids: list[int]) -> dict[str, list[int]]:
    return {"prompt_token_ids": ids}


def run(llm: LLM, order: list[int]) -> dict[int, list[int]]:
    outs = llm.generate([as_prompt(PROMPTS[i]) for i in order], [PARAMS[i] for i in order])
    return {i: out.outputs[0].token_ids for i, out in zip(order, outs, strict=True)}


def test_neighbours_order_and_batch_size_change_nothing(make_tiny):
    llm = make_tiny(max_num_seqs=8)
    alone = {i: run(llm, [i])[i] for i in range(5)}
    assert len({tuple(ids) for ids in alone.values()}) == 5
    assert run(llm, [0, 1, 2, 3, 4]) == alone
    assert run(llm, [3, 1, 4, 0, 2]) == alone
    assert run(make_tiny(max_num_seqs=2), [4, 2, 0, 1, 3]) == alone


def test_unseeded_requests_differ_and_repeat_with_the_engine_seed(make_tiny):
    params = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True)
    first = [o.outputs[0].token_ids for o in make_tiny(seed=3).generate([as_prompt([1, 2])] * 3, params)]
    again = [o.outputs[0].token_ids for o in make_tiny(seed=3).generate([as_prompt([1, 2])] * 3, params)]
    assert first == again
    assert len({tuple(ids) for ids in first}) == 3


def test_the_trace_of_a_run_keeps_the_invariants(make_tiny):
    sink = MemorySink()
    llm = LLM("tiny", load_format="dummy", max_model_len=256, max_num_seqs=2, sinks=[sink])
    run(llm, [0, 1, 2, 3, 4])
    llm.shutdown()
    trace = Trace(sink.events)
    assert check_trace(trace) == []
    assert len(trace.requests) == 5


@pytest.mark.parametrize("block_size", [16, 5, 64])
@pytest.mark.parametrize("budget", [50, 17, 16, 7, 1])
def test_any_chunking_gives_the_logits_of_one_shot(make_tiny, budget, block_size):
    """The runner follows any plan, so later schedulers may cut prompts: positions, lengths and slots stay right."""
    llm = make_tiny()
    whole = logits_after(llm, [50], 64)
    chunked = logits_after(llm, [min(budget, 50 - done) for done in range(0, 50, budget)], block_size)
    torch.testing.assert_close(chunked, whole, rtol=1e-4, atol=1e-4)


def logits_after(llm: LLM, chunks: list[int], block_size: int) -> torch.Tensor:
    """Last-position logits of a 50-token prompt computed in ``chunks`` over blocks in falling order."""
    from stage1.attention import TorchAttention
    from stage1.kv_cache import KVCache
    from stage1.model.rope import rope_tables
    from stage1.runner import ModelRunner

    seen: list[torch.Tensor] = []

    class Spy:
        def sample(self, logits, batch):
            from stage1.sampler import TorchSampler

            seen.append(logits.clone())
            return TorchSampler(()).sample(logits, batch)

    runner = llm.core.executor._runner
    model, device = runner._model, runner._device
    needed = -(-64 // block_size)
    cache = KVCache(model.shape, needed + 2, block_size, torch.float32, device)
    for layer in cache.layers:
        layer.fill_(math.nan)
    attention = TorchAttention(cache, *rope_tables(model.shape, 64, device))
    fresh = ModelRunner(model, attention, Spy(), (), block_size, device)
    prompt, params = [(7 * i) % 250 for i in range(50)], SamplingParams(temperature=0, seed=0)
    new = NewRequestData("r", prompt, [], params, list(range(needed + 1, 1, -1)), 0)
    done = 0
    for step, n in enumerate(chunks):
        cached = CachedRequests(["r"], [done]) if step else CachedRequests()
        out = fresh.execute(SchedulerOutput(step, [] if step else [new], cached, {"r": n}))
        done += n
        assert bool(out.sampled[0]) == (done == 50)
        assert not out.failed
    return seen[-1]


def test_logits_that_are_not_a_number_end_one_request(make_tiny):
    """The planted fault hits the row of one prompt; the other row is untouched."""
    from dataclasses import replace as swap

    from stage1.build import Parts

    class Poison:
        def prepare(self, plan, batch):
            pass

        def apply(self, logits, batch):
            for row, state in enumerate(batch.states):
                if state.token_ids[0] == 99 and state.num_output_tokens == 2:
                    logits[row] = math.nan
            return logits

    llm = LLM("tiny", load_format="dummy", max_model_len=64, parts=swap(Parts(), processors=lambda v, d: (Poison(),)))
    params = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)
    bad, good = llm.generate([as_prompt([99, 1]), as_prompt([98, 1])], params)
    llm.shutdown()
    assert (bad.outputs[0].finish_reason, len(bad.outputs[0].token_ids)) == ("error", 2)
    assert "logits" in bad.outputs[0].error
    assert (good.outputs[0].finish_reason, len(good.outputs[0].token_ids)) == ("length", 5)


def test_a_step_that_raises_ends_its_requests_and_the_engine_goes_on(make_tiny):
    llm = make_tiny()
    runner = llm.core.executor._runner
    real, calls = runner._model.logits, []

    def broken(hidden):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("planted: out of memory")
        return real(hidden)

    runner._model.logits = broken
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    first = llm.generate([as_prompt([1, 2])] * 2, params)
    assert {out.outputs[0].finish_reason for out in first} == {"error"}
    assert all("planted" in out.outputs[0].error for out in first)
    second = llm.generate([as_prompt([1, 2])], params)
    assert second[0].outputs[0].finish_reason == "length"


def test_prompt_logprobs_equal_sampled_logprobs_of_the_same_tokens(make_tiny):
    """What the engine sampled with logprobs, it finds again as prompt_logprobs of the longer prompt."""
    llm = make_tiny()
    ids = list(range(40, 60))
    sampled = llm.generate([as_prompt(ids)], SamplingParams(temperature=0, max_tokens=6, logprobs=3, ignore_eos=True))[
        0
    ]
    new = sampled.outputs[0].token_ids
    again = llm.generate(
        [as_prompt(ids + new)], SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=3, ignore_eos=True)
    )[0]
    assert again.prompt_logprobs[0] is None
    assert len(again.prompt_logprobs) == len(ids) + len(new)
    for token, a, b in zip(new, sampled.outputs[0].logprobs, again.prompt_logprobs[len(ids) :], strict=True):
        assert a[token].logprob == pytest.approx(b[token].logprob, abs=1e-4)
        assert a[token].rank == b[token].rank == 1
