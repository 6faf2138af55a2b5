"""Measure this stage on a GPU: decode steps and workload W, for later stages to be compared with.

    python stages/01_single_gpu/measure.py --out stages/06_benchmark/results

Weights are random, prompts are token ids, EOS is ignored. Every figure stands beside the bandwidth and the matmul rate
that were read in the same run; each run is one JSON file with GPU, versions, commit and date. Loading and warming up
are outside the clock.

Workload W is described in ``stage1/workloads.py``. All its requests sit in one static batch (``--max-num-seqs 256``).
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import torch

from stage1.measuring import device_rates, provenance, require_gpu, spread, write_result
from stage1.workloads import REQUESTS, SIZES, decode_step, make_core, workload

ROUNDS = 3
DECODE_BATCHES = (1, 8, 64, 256)


def measure(stage: int, shape: str) -> dict[str, Any]:
    """Everything for one shape: medians of ``ROUNDS`` rounds with their spread."""
    core = make_core(importlib.import_module(f"stage{stage}.build"), shape, **SIZES)
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


def main() -> None:
    """Measure, print a table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stage", type=int, default=1, help="whose engine; later stages are compared with this one")
    parser.add_argument("--shapes", nargs="+", default=["smollm2-135m", "qwen3-0.6b"])
    parser.add_argument("--out", type=Path, default=Path("stages/06_benchmark/results"))
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    require_gpu()
    result = {**provenance(args.commit), "rates_before": device_rates(), "shapes": []}
    for shape in args.shapes:
        result["shapes"].append(measure(args.stage, shape))
        torch.cuda.empty_cache()
        print(json.dumps(result["shapes"][-1]), flush=True)
    result["rates_after"] = device_rates()
    path = write_result(args.out, f"stage{args.stage}", result)
    print(json.dumps(result["rates_before"]), json.dumps(result["rates_after"]), path, sep="\n")


if __name__ == "__main__":
    main()
