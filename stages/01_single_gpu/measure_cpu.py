"""Measure this stage on a CPU with the real model: start-up, decoding at batch 1 and 8, memory.

    python stages/01_single_gpu/measure_cpu.py --out stages/06_benchmark/results

Each figure comes from a process of its own that is started three times; the first start of all, which may have to
convert the model, is not counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers

from stage1.llm import LLM
from stage1.measuring import host_provenance, write_result
from stage1.model.ops import TorchOps
from stage1.model.shape import PRESETS
from stage1.model.weights import expected_tensors
from stage1.params import SamplingParams

ROUNDS = 3
PROMPT = "1, 2, 3, 4, 5,"
OUTPUT_TOKENS = 64


def decode(batch: int) -> dict[str, float]:
    """One run in this process: seconds to load, tokens a second after the first token."""
    start = time.perf_counter()
    with LLM(device="cpu", dtype="float32") as llm:
        loaded = time.perf_counter()
        params = SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
        first = last = 0.0
        for _ in llm.stream([PROMPT] * batch, params):
            last = time.perf_counter()
            first = first or last
    steps = OUTPUT_TOKENS - 1
    return {
        "load_s": loaded - start,
        "ttft_s": first - loaded,
        "step_ms": (last - first) * 1e3 / steps,
        "tok_s": batch * steps / (last - first),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }


def linear_ms(rows: int) -> dict[str, float]:
    """Milliseconds of the linear layers of one decode step, as torch computes them and as ``TorchOps`` does."""
    sizes = [size for size in expected_tensors(PRESETS["smollm2-135m"]).values() if len(size) == 2]
    weights = [torch.randn(size) for size in sizes]
    x = {size[1]: torch.randn(rows, size[1]) for size in sizes}
    result = {}
    for name, linear in (("torch", F.linear), ("ours", TorchOps().linear)):
        times = []
        for _ in range(9):
            start = time.perf_counter()
            for weight in weights:
                linear(x[weight.shape[1]], weight)
            times.append((time.perf_counter() - start) * 1e3)
        result[name] = statistics.median(times[2:])
    return result


def in_a_process(batch: int) -> dict[str, float]:
    """``decode(batch)`` in a new process, with the seconds from its start to its first token."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--child", str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    generating = OUTPUT_TOKENS * result["step_ms"] / 1e3
    result["start_to_first_token_s"] = time.perf_counter() - start - generating
    return result


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("stages/06_benchmark/results"))
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(decode(args.child)))
        return
    in_a_process(1)
    result: dict[str, Any] = {
        **host_provenance(None),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "dtype": "float32",
        "model": "smollm2-135m-instruct",
    }
    for batch in (1, 8):
        runs = [in_a_process(batch) for _ in range(ROUNDS)]
        result[f"batch_{batch}"] = {
            key: {"median": statistics.median(values), "min": min(values), "max": max(values)}
            for key in runs[0]
            for values in [[run[key] for run in runs]]
        }
        result[f"linear_ms_{batch}_rows"] = linear_ms(batch)
    write_result(args.out, "stage1", result, machine="cpu")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
