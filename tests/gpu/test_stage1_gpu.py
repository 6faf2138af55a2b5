"""Stage 1 on a CUDA GPU: the same tokens as on the CPU in float32, and bfloat16 near them."""

import pytest
import torch

from stage1.llm import LLM
from stage1.params import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

COUNTING = "1, 2, 3, 4, 5,"
PROMPTS = [{"prompt_token_ids": [(7 * i + 3 * j) % 250 for j in range(5 + 9 * i)]} for i in range(6)]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, top_k=7, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=1.2, seed=3, top_p=0.7, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=4, min_p=0.1, repetition_penalty=1.2, max_tokens=16, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=5, logit_bias={7: 3.0}, presence_penalty=1.0, max_tokens=16, ignore_eos=True),
]


def tiny(device: str, **settings) -> list[list[int]]:
    with LLM("tiny", load_format="dummy", max_model_len=128, device=device, dtype="float32", **settings) as llm:
        return [out.outputs[0].token_ids for out in llm.generate(PROMPTS, PARAMS)]


def test_every_kind_of_sampling_gives_the_tokens_of_the_cpu():
    assert tiny("cuda") == tiny("cpu")


def test_batch_size_changes_nothing():
    assert tiny("cuda", max_num_seqs=2) == tiny("cuda", max_num_seqs=6)


def test_the_real_model_runs_in_bfloat16_and_counts():
    with LLM(max_model_len=512) as llm:
        assert llm.core.executor._runner._model.norm.weight.dtype == torch.bfloat16
        assert llm.core.executor._runner._device.type == "cuda"
        out = llm.generate([COUNTING] * 8, SamplingParams(temperature=0, max_tokens=24))
    assert {o.outputs[0].text for o in out} == {" 6, 7, 8, 9, 10, 11, 12,"}


def test_bfloat16_logprobs_are_near_float32():
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    rows = {}
    for dtype in ("float32", "bfloat16", "float16"):
        with LLM(max_model_len=256, dtype=dtype) as llm:
            out = llm.generate("The quick brown fox jumps over the lazy dog, and then it sleeps.", params)[0]
        ids = out.prompt_token_ids[1:]
        rows[dtype] = [row[t].logprob for t, row in zip(ids, out.prompt_logprobs[1:], strict=True)]
    reference = torch.tensor(rows["float32"])
    assert (torch.tensor(rows["bfloat16"]) - reference).abs().max() < 0.5
    assert (torch.tensor(rows["bfloat16"]) - reference).abs().mean() < 0.1
    assert (torch.tensor(rows["float16"]) - reference).abs().max() < 0.2


def test_what_does_not_fit_is_refused_with_both_numbers():
    before = torch.cuda.memory_allocated()
    with pytest.raises(ValueError, match=r"GiB.*GiB"):
        LLM("llama3-8b", load_format="dummy", max_model_len=8192, max_num_seqs=100_000, device="cuda")
    assert torch.cuda.memory_allocated() == before


def test_a_shut_down_engine_gives_its_memory_back():
    before = torch.cuda.memory_allocated()
    with LLM("tiny", load_format="dummy", max_model_len=128, device="cuda") as llm:
        llm.generate(PROMPTS[0], PARAMS[0])
        assert torch.cuda.memory_allocated() > before
    del llm
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
