"""Requests of many kinds over texts that copy themselves, so that every drafter has something to guess."""

from stage1.params import SamplingParams

LOOP = [5, 6, 7, 8, 9, 10, 11] * 6
PROMPTS = [{"prompt_token_ids": [*LOOP[i:], i]} for i in range(7)]
PARAMS = [
    SamplingParams(temperature=0, max_tokens=60, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=1, max_tokens=50, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=2, top_k=5, max_tokens=60, ignore_eos=True),
    SamplingParams(temperature=0.5, seed=3, top_p=0.6, min_p=0.01, max_tokens=40, ignore_eos=True),
    SamplingParams(temperature=0.8, seed=4, repetition_penalty=1.2, max_tokens=60, ignore_eos=True),
    SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, logprobs=1, prompt_logprobs=0),
    SamplingParams(temperature=0.3, seed=6, max_tokens=200, stop_token_ids=[30, 31, 32, 33], ignore_eos=True),
]
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "prompt_lookup_max": 3}


def tokens(outputs) -> list[list[int]]:
    """The ids of each output."""
    return [output.outputs[0].token_ids for output in outputs]
