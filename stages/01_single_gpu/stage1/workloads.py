"""What an engine is given to do while it is measured: random prompts, decode steps, workload W.

Owns the requests and how the engine is brought to them. Does not know whose engine it is, nor what is written down
(``measuring`` does). Prompts are token ids, EOS is ignored.

Workload W: 256 requests at once, prompts of 100-1024 and outputs of 100-1024 tokens drawn evenly (seed 0), temperature
0.6.

vLLM: ``vllm/benchmarks/datasets.py`` (``RandomDataset``), ``vllm/benchmarks/throughput.py`` (``run_vllm``).
"""

from __future__ import annotations

import random
import time
from types import ModuleType
from typing import Any

import torch

from stage1.config import Settings
from stage1.core import EngineCore
from stage1.measuring import timed
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest

CONTEXT = 128  # tokens of a request when its decode steps are measured
DECODE_STEPS = 32
REQUESTS = 256
LENGTHS = (100, 1024)
MAX_ID = 10_000  # of the random token ids
SIZES = {"max_model_len": 2049, "max_num_batched_tokens": 16384}  # hold W and the decode steps


def make_core(wiring: ModuleType, shape: str, **settings: Any) -> EngineCore:
    """The engine of a stage, whose ``build`` module is ``wiring``, with random weights and a seat for each of W."""
    chosen = {"model": shape, "load_format": "dummy", "max_num_seqs": REQUESTS, **settings}
    core: EngineCore = wiring.build(Settings.from_keywords(wiring.CONFIGS, chosen))
    return core


def random_prompts(count: int, length: int, seed: object = 0) -> list[list[int]]:
    """Random token ids, others for every ``seed``."""
    rng = random.Random(f"{count} {length} {seed}")
    return [[rng.randrange(10, MAX_ID) for _ in range(length)] for _ in range(count)]


def add_requests(core: EngineCore, prompts: list[list[int]], outputs: list[int], temperature: float) -> None:
    """Queue a request for each prompt and number of output tokens."""
    for i, (ids, length) in enumerate(zip(prompts, outputs, strict=True)):
        params = SamplingParams(temperature=temperature, seed=i, max_tokens=length, ignore_eos=True)
        core.add_request(EngineCoreRequest(f"{time.monotonic_ns()}-{i}", ids, params))


def take_steps(core: EngineCore, count: int) -> None:
    """``count`` steps."""
    for _ in range(count):
        core.step()


def finish(core: EngineCore) -> None:
    """Run until nothing is left."""
    while core.has_work:
        core.step()


def start_decoding(core: EngineCore, prompts: list[list[int]], steps: int) -> None:
    """Bring a request for each prompt to its decode steps, greedily, with ``steps`` to go and some to spare.

    Raises:
        RuntimeError: the first ones ended before the last one's prompt was computed.
    """
    add_requests(core, prompts, [steps + 8] * len(prompts), temperature=0.0)
    compute_prompts(core, len(prompts))
    take_steps(core, 4)


def compute_prompts(core: EngineCore, num_decodes: int) -> None:
    """Step until a step is ``num_decodes`` decodes and nothing else.

    Raises:
        RuntimeError: the first ones ended before the last one's prompt was computed.
    """
    while core.stats().scheduled_tokens != num_decodes:
        if not core.has_work:
            raise RuntimeError(f"{num_decodes} requests never decoded together: give them more output tokens")
        core.step()


def decode_step(core: EngineCore, batch: int) -> dict[str, float]:
    """Milliseconds of one greedy decode step, by the wall clock."""
    rng = random.Random(batch)
    prompts = [[rng.randrange(10, MAX_ID) for _ in range(CONTEXT)] for _ in range(batch)]
    start_decoding(core, prompts, DECODE_STEPS)
    wall = timed(lambda: take_steps(core, DECODE_STEPS)) / DECODE_STEPS
    finish(core)
    return {"batch": batch, "context": CONTEXT, "wall_ms": wall, "tok_s": batch / wall * 1e3}


def requests_of_w() -> tuple[list[list[int]], list[int]]:
    """Prompts, and the number of output tokens of each."""
    rng = random.Random(0)
    prompts = [[rng.randint(0, MAX_ID) for _ in range(rng.randint(*LENGTHS))] for _ in range(REQUESTS)]
    return prompts, [rng.randint(*LENGTHS) for _ in range(REQUESTS)]


def workload(core: EngineCore) -> dict[str, float]:
    """One run of W: seconds and output tokens a second."""
    prompts, lengths = requests_of_w()
    torch.cuda.synchronize()
    start = time.perf_counter()
    add_requests(core, prompts, lengths, temperature=0.6)
    steps = 0
    while core.has_work:
        core.step()
        steps += 1
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    outputs = sum(lengths)
    return {
        "prompt_tokens": sum(map(len, prompts)),
        "output_tokens": outputs,
        "seconds": seconds,
        "output_tok_s": outputs / seconds,
        "steps": steps,
        "mean_rows": outputs / steps,  # of the 256 seats: the rest is static batching's waste
    }
