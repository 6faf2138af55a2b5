"""Profile steps that verify drafts, with the guesses behind them, on a GPU: which kernels take the time.

    python stages/03_prefix_spec/measure_profile.py --out stages/06_benchmark/results

The engines are those of ``measure_speculation.py``, prompts are random token ids, so drafts are seldom right; a step
computes as much whether they are or not. What is recorded is not timed: the clock runs in steps of its own. The result
is one JSON file with GPU, versions, commit and date.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from stage1.core import EngineCore
from stage1.measuring import device_rates, free_memory, provenance, require_gpu, write_result
from stage1.profiling import profile_steps
from stage1.workloads import add_requests, finish, random_prompts, take_steps
from stage3.measured import ARMS, make_llm

BATCHES = (1, 16, 64)
CONTEXT, STEPS = 128, 16
WARM = 8  # steps before the first that is profiled


def profile_step(core: EngineCore, batch: int) -> dict[str, Any]:
    """A step of ``batch`` decoding requests, each with drafts where the engine makes some."""
    add_requests(core, random_prompts(batch, CONTEXT), [CONTEXT * 4] * batch, temperature=0.0)
    take_steps(core, WARM)
    found = profile_steps(core.step, STEPS)
    tokens = core.stats().scheduled_tokens
    finish(core)
    return {"batch": batch, "tokens": tokens, **found}


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arms", nargs="+", default=["none", "medusa", "eagle"], choices=list(ARMS))
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    require_gpu()
    result: dict[str, Any] = {**provenance(args.commit), "stage": 3, "model": args.model, "arms": ARMS, "cases": []}
    result["rates_before"] = device_rates()
    for arm in args.arms:
        free_memory()
        core = make_llm(arm, model=args.model).core
        for batch in BATCHES:
            result["cases"].append({"arm": arm, **profile_step(core, batch)})
            print(json.dumps(result["cases"][-1]), flush=True)
        core.shutdown()
    result["rates_after"] = device_rates()
    if args.out is not None:
        write_result(args.out, "stage3_profile", result)


if __name__ == "__main__":
    main()
