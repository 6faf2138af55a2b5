"""The real SmolLM2 against transformers on the same weights: logits of every position, unequal prompts in one batch."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaForCausalLM

from stage1.llm import LLM
from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput

TEXTS = [
    "1, 2, 3, 4, 5,",
    "The capital of France is",
    "Naïve café: 42 crêpes 🦙, 3.14 and\n\n    def f(x):\n        return x ** 2",
]


@pytest.fixture(scope="module")
def reference(smollm_source) -> LlamaForCausalLM:
    return LlamaForCausalLM.from_pretrained(smollm_source.path, dtype=torch.float32, local_files_only=True).eval()


@torch.inference_mode()
def test_logits_of_the_real_model(smollm: LLM, reference: LlamaForCausalLM, smollm_tokenizer) -> None:
    prompts = [smollm_tokenizer.encode(text) for text in TEXTS]
    runner = smollm.core.executor._runner
    seen: list[torch.Tensor] = []
    forward = runner._model.forward
    runner._model.forward = lambda *args: seen.append(forward(*args)) or seen[-1]
    try:
        new = [
            NewRequestData(str(i), ids, [], SamplingParams(temperature=0, seed=0), [i], 0)
            for i, ids in enumerate(prompts)
        ]
        runner.execute(SchedulerOutput(0, new, CachedRequests(), {str(i): len(p) for i, p in enumerate(prompts)}))
        logits = runner._model.logits(seen[0]).cpu()  # [T, vocab]
    finally:
        del runner._model.forward
        for state in [str(i) for i in range(len(prompts))]:
            runner._states.pop(state)
    for ids, ours in zip(prompts, logits.split([len(p) for p in prompts]), strict=True):
        theirs = reference(torch.tensor([ids])).logits[0]
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-4)
