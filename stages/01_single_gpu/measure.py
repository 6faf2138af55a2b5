"""Measure this stage on a GPU: decode steps and workload W, for later stages to be compared with.

    python stages/01_single_gpu/measure.py --out stages/06_benchmark/results

Weights are random, prompts are token ids, EOS is ignored. Every figure stands beside the bandwidth and the matmul rate
that were read in the same run; each run is one JSON file with GPU, versions, commit and date. Loading and warming up
are outside the clock.

Workload W: 256 requests at once, prompts of 100-1024 and outputs of 100-1024 tokens drawn evenly (seed 0), temperature
0.6. All of them sit in one static batch (``--max-num-seqs 256``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
import triton

from stage1.config import Settings
from stage1.core import EngineCore
from stage1.params import SamplingParams
from stage1.records import EngineCoreRequest

ROUNDS = 3
DECODE_BATCHES = (1, 8, 64, 256)
CONTEXT = 128  # tokens of a request when its decode steps are measured
DECODE_STEPS = 32
REQUESTS = 256
LENGTHS = (100, 1024)
MAX_ID = 10_000  # of the random token ids


def median_ms(run: Callable[[], Any], repeats: int) -> float:
    """Median milliseconds of ``run`` on the device, by CUDA events."""
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def device_rates() -> dict[str, float]:
    """What the GPU reaches now: read stream and copy in TB/s, an 8192³ bf16 matmul in TFLOP/s."""
    data = torch.randn(1 << 30, device="cuda")  # 4 GiB, far beyond the L2 cache
    copy = torch.empty_like(data)
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    return {
        "read_tb_s": data.nbytes / median_ms(lambda: data.sum(), 10) / 1e9,
        "copy_tb_s": 2 * data.nbytes / median_ms(lambda: copy.copy_(data), 10) / 1e9,
        "matmul_tflop_s": 2 * 8192**3 / median_ms(lambda: a @ b, 10) / 1e9,
    }


def make_core(stage: int, shape: str) -> EngineCore:
    """The engine of ``stage`` with random weights and a seat for each request of W."""
    wiring = importlib.import_module(f"stage{stage}.build")
    settings = {"model": shape, "load_format": "dummy", "max_model_len": 2049, "max_num_seqs": REQUESTS}
    core: EngineCore = wiring.build(
        Settings.from_keywords(wiring.CONFIGS, {**settings, "max_num_batched_tokens": 16384})
    )
    return core


def add(core: EngineCore, prompts: list[list[int]], outputs: list[int], temperature: float) -> None:
    """Queue a request for each prompt and number of output tokens."""
    for i, (ids, length) in enumerate(zip(prompts, outputs, strict=True)):
        params = SamplingParams(temperature=temperature, seed=i, max_tokens=length, ignore_eos=True)
        core.add_request(EngineCoreRequest(f"{time.monotonic_ns()}-{i}", ids, params))


def decode_step(core: EngineCore, batch: int) -> dict[str, float]:
    """Milliseconds of one greedy decode step, by the wall clock."""
    rng = random.Random(batch)
    prompts = [[rng.randrange(10, MAX_ID) for _ in range(CONTEXT)] for _ in range(batch)]
    add(core, prompts, [DECODE_STEPS + 8] * batch, temperature=0.0)
    while core.stats().scheduled_tokens != batch:  # until every prompt is computed
        core.step()
    for _ in range(4):
        core.step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(DECODE_STEPS):
        core.step()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - start) * 1e3 / DECODE_STEPS
    while core.has_work:
        core.step()
    return {"batch": batch, "context": CONTEXT, "wall_ms": wall, "tok_s": batch / wall * 1e3}


def workload(core: EngineCore) -> dict[str, float]:
    """One run of W: seconds and output tokens a second."""
    rng = random.Random(0)
    prompts = [[rng.randint(0, MAX_ID) for _ in range(rng.randint(*LENGTHS))] for _ in range(REQUESTS)]
    lengths = [rng.randint(*LENGTHS) for _ in range(REQUESTS)]
    torch.cuda.synchronize()
    start = time.perf_counter()
    add(core, prompts, lengths, temperature=0.6)
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


def measure(stage: int, shape: str) -> dict[str, Any]:
    """Everything for one shape: medians of ``ROUNDS`` rounds with their spread."""
    core = make_core(stage, shape)
    decode_step(core, 1)
    rows = [[decode_step(core, batch) for batch in DECODE_BATCHES] for _ in range(ROUNDS)]
    runs = [workload(core) for _ in range(ROUNDS)]
    core.shutdown()
    return {
        "stage": stage,
        "shape": shape,
        "max_num_seqs": REQUESTS,
        "decode": [spread(list(column), "wall_ms") for column in zip(*rows, strict=True)],
        "workload_w": spread(runs, "output_tok_s"),
    }


def spread(runs: list[dict[str, float]], key: str) -> dict[str, Any]:
    """The run with the median ``key``, with the smallest and largest beside it."""
    ordered = sorted(runs, key=lambda run: run[key])
    return {
        **ordered[len(ordered) // 2],
        f"{key}_min": ordered[0][key],
        f"{key}_max": ordered[-1][key],
        "rounds": len(runs),
    }


def provenance(commit: str | None) -> dict[str, Any]:
    """Where and with what this was measured."""
    if commit is None:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit or "unknown",
        "gpu": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
        "dtype": "bfloat16",
    }


def main() -> None:
    """Measure, print a table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", type=int, default=1, help="whose engine; later stages are compared with this one")
    parser.add_argument("--shapes", nargs="+", default=["smollm2-135m", "qwen3-0.6b"])
    parser.add_argument("--out", type=Path, default=Path("stages/06_benchmark/results"))
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA GPU is there: nothing to measure")
    result = {**provenance(args.commit), "rates_before": device_rates(), "shapes": []}
    for shape in args.shapes:
        result["shapes"].append(measure(args.stage, shape))
        torch.cuda.empty_cache()
        print(json.dumps(result["shapes"][-1]), flush=True)
    result["rates_after"] = device_rates()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"stage{args.stage}_{result['gpu'].replace(' ', '-').lower()}_{result['date'][:10]}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["rates_before"]), json.dumps(result["rates_after"]), path, sep="\n")


if __name__ == "__main__":
    main()
