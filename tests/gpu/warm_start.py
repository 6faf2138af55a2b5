"""Serve a mixed load in a process of its own and print which kernels were compiled after the engine had started."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import triton

from stage1.params import SamplingParams
from stage2 import graphs
from stage3.llm import LLM

STEPS, SEATS = 400, 32
compiled: list[str] = []


def note(*_: Any, repr: str, **__: Any) -> None:
    """Triton calls it when a variant of a kernel was compiled, or loaded from its cache on disk."""
    compiled.append(repr)


def params(rng: random.Random) -> SamplingParams:
    """Greedy, drawn, filtered or guided."""
    chosen: dict[str, Any] = rng.choice(
        [
            {"temperature": 0.0},
            {"temperature": 0.8},
            {"temperature": 0.8, "top_p": 0.9},
            {"temperature": 0.8, "top_k": 20, "min_p": 0.01},
            {"temperature": 0.8, "structured_outputs": {"regex": "[ab]{5,40}"}},
        ]
    )
    return SamplingParams(
        max_tokens=rng.randint(1, 60), seed=rng.randint(0, 99), ignore_eos=rng.random() < 0.5, **chosen
    )


def main() -> None:
    """Arrivals in bursts, prompts from one token to many, some that begin alike."""
    rng = random.Random(7)
    settings = {"max_num_seqs": SEATS, "max_num_batched_tokens": 2048, "load_format": "dummy"}
    sizes = {"model": "tiny", "max_model_len": 1024, "dtype": "bfloat16", "device": "cuda", **json.loads(sys.argv[1])}
    if sizes.pop("as_large", False):
        graphs.LAUNCH_BOUND = 1  # graphs as for a large model: up to 512 tokens
    with LLM(**settings, **sizes) as llm:
        triton.knobs.runtime.jit_post_compile_hook = note
        core, number, failed = llm.core, 0, {}
        for _ in range(STEPS):
            longest = rng.choice([3, 5, 6, 9.8])  # of a burst: a few tokens each, some, or any
            for _ in range(rng.choice([0] * 12 + [1, 1, 2, 5, 12, 20, 40])):
                length = min(int(2 ** rng.uniform(0, longest)), 900)
                ids = [7] * rng.choice([0, 0, 32]) + [rng.randint(5, 200) for _ in range(length)]
                request = llm._inputs.process(ids, params(rng), request_id=f"{number}").children[0]
                core.add_request(request)
                number += 1
            failed |= core.step().error
    print(json.dumps({"requests": number, "compiled": compiled, "failed": failed}))


if __name__ == "__main__":
    main()
