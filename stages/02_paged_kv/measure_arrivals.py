"""Measure this stage's engine on a GPU while requests arrive: mixed steps, long prompts among decodes, a steady stream.

    python stages/02_paged_kv/measure_arrivals.py --out stages/06_benchmark/results

Weights are random, prompts are token ids, EOS is ignored. The result is one JSON file as in ``measure_engine.py``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from stage1.core import EngineCore
from stage1.measuring import device_rates, free_memory, provenance, require_gpu, spread, timed, write_result
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest
from stage1.workloads import LENGTHS, MAX_ID, add_requests, finish, random_prompts, start_decoding, workload
from stage2.measured import make_core

ROUNDS = 3
LONG_PROMPT = 16_000
CHUNK = 1024
STREAM = 192  # requests of the steady stream


def mixed_step(core: EngineCore, decodes: int = 255, chunk: int = 128, rounds: int = 8) -> dict[str, float]:
    """A step of ``decodes`` decodes and one prompt of ``chunk`` tokens, against decodes alone."""
    start_decoding(core, random_prompts(decodes, 128), 6 * rounds)
    mixed, pure = [], []
    for i in range(rounds):
        add_requests(core, random_prompts(1, chunk, seed=i), [2], temperature=0.0)
        mixed.append(timed(core.step))
        pure.append(timed(core.step))  # all decode, the new one too
        core.step()  # it has left
    finish(core)
    ratio = statistics.median(mixed) / statistics.median(pure)
    return {"mixed_ms": statistics.median(mixed), "pure_ms": statistics.median(pure), "ratio": ratio}


def long_arrivals(shape: str, chunk: int) -> dict[str, float]:
    """16 requests decode while four prompts of 16,000 tokens arrive: gaps between tokens, and tokens in all."""
    budget = chunk if chunk else LONG_PROMPT + 64
    core = make_core(shape, max_model_len=LONG_PROMPT + 256, max_num_batched_tokens=budget, max_num_seqs=32)
    add_requests(core, random_prompts(1, 512), [4], temperature=0.0)
    finish(core)
    running, steps = 16, 400
    add_requests(core, random_prompts(running, 256), [steps] * running, temperature=0.0)
    gaps, arrivals, number = [], 4, 0
    torch.cuda.synchronize()
    start = last = time.perf_counter()
    while core.has_work:
        if number % 60 == 30 and arrivals:
            add_requests(core, random_prompts(1, LONG_PROMPT, seed=arrivals), [8], temperature=0.0)
            arrivals -= 1
        core.step()
        now = time.perf_counter()
        gaps.append((now - last) * 1e3)
        last, number = now, number + 1
    seconds = time.perf_counter() - start
    core.shutdown()
    total = running * (256 + steps) + 4 * (LONG_PROMPT + 8)
    gaps = sorted(gaps[5:])
    return {
        "chunk": chunk,
        "itl_p50_ms": statistics.median(gaps),
        "itl_p99_ms": gaps[int(0.99 * (len(gaps) - 1))],
        "itl_max_ms": gaps[-1],
        "tok_s": total / seconds,
        "seconds": seconds,
    }


def stream(core: EngineCore, rate: float) -> dict[str, float]:
    """Requests of workload W's lengths arrive at random, ``rate`` a second on average; temperature 0.6."""
    rng = random.Random(1)
    low, high = LENGTHS
    arrivals, when = [], 0.0
    for i in range(STREAM):
        when += rng.expovariate(rate)
        ids = [rng.randint(0, MAX_ID) for _ in range(rng.randint(low, high))]
        params = SamplingParams(temperature=0.6, seed=i, max_tokens=rng.randint(low, high), ignore_eos=True)
        arrivals.append((when, EngineCoreRequest(f"{when}-{i}", ids, params)))
    sent: dict[str, float] = {}
    last: dict[str, float] = {}
    firsts, gaps, tokens = [], [], 0
    start = time.perf_counter()
    while arrivals or core.has_work:
        now = time.perf_counter() - start
        while arrivals and arrivals[0][0] <= now:
            due, request = arrivals.pop(0)
            sent[request.req_id] = due
            core.add_request(request)
        if not core.has_work:
            continue
        outputs = core.step()
        now = time.perf_counter() - start
        for req_id, ids in zip(outputs.req_ids, outputs.new_ids, strict=True):
            if not ids:
                continue
            tokens += len(ids)
            if req_id in last:
                gaps.append((now - last[req_id]) * 1e3)
            else:
                firsts.append((now - sent[req_id]) * 1e3)
            last[req_id] = now
    seconds = time.perf_counter() - start
    gaps.sort()
    return {
        "rate": rate,
        "requests": STREAM,
        "tok_s": tokens / seconds,
        "itl_p50_ms": statistics.median(gaps),
        "itl_p99_ms": gaps[int(0.99 * (len(gaps) - 1))],
        "ttft_p50_ms": statistics.median(firsts),
    }


def measure_stream(name: str) -> dict[str, Any]:
    """Mixed steps, and a stream at 80 % of what workload W reaches here."""
    core = make_core(name, max_model_len=2304)
    finish_warm_up(core)
    mixed = spread([mixed_step(core) for _ in range(ROUNDS)], "ratio")
    capacity = workload(core)["output_tok_s"]
    rate = 0.8 * capacity / (sum(LENGTHS) / 2)
    found = {"shape": name, "capacity_tok_s": capacity, "mixed_step": mixed, "stream": stream(core, rate)}
    core.shutdown()
    return found


def finish_warm_up(core: EngineCore) -> None:
    """A prompt and some tokens, outside the clock."""
    add_requests(core, random_prompts(4, 512), [8] * 4, temperature=0.6)
    finish(core)


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stream", default="qwen3-0.6b", help="shape of the stream and of the mixed steps")
    parser.add_argument("--long", default="qwen3-8b", help="shape of the long prompts among decodes")
    parser.add_argument("--what", nargs="+", default=["stream", "long"], choices=["stream", "long"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    require_gpu()
    result = {**provenance(args.commit), "stage": 2, "rates_before": device_rates()}
    if "stream" in args.what:
        result["arrivals"] = measure_stream(args.stream)
        print(json.dumps(result["arrivals"]), flush=True)
        free_memory()
    if "long" in args.what:
        result["long_shape"] = args.long
        result["long_prompts"] = [long_arrivals(args.long, chunk) for chunk in (CHUNK, 0)]
        print(json.dumps(result["long_prompts"]), flush=True)
        free_memory()
    result["rates_after"] = device_rates()
    if args.out is not None:
        print(write_result(args.out, "stage2_arrivals", result))


if __name__ == "__main__":
    main()
