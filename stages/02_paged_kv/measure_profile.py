"""Profile this stage's engine on a GPU: the kernels of a step, the steps of workload W, a chunk behind a long prompt.

    python stages/02_paged_kv/measure_profile.py --shapes qwen3-8b --what decode w --out stages/06_benchmark/results

What is recorded is not timed: the clock runs in steps of its own. Weights are random, prompts are token ids, EOS is
ignored. The result is one JSON file as in ``measure_engine.py``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from stage1.core import EngineCore
from stage1.measuring import device_rates, free_memory, provenance, require_gpu, timed, write_result
from stage1.profiling import profile_steps
from stage1.workloads import add_requests, compute_prompts, finish, random_prompts, requests_of_w, start_decoding
from stage2.measured import make_core

DECODES = ((1, 128), (64, 128), (256, 128), (256, 800))  # batch, context
STEPS = 8  # of each half of a profile
PROMPT_STEPS = 32  # until the last prompt is computed
PREFILL, PREFILL_STEPS = 4000, 3  # tokens of a prompt, and steps of each half of its profile
LONG, CHUNK = 16_000, 1024
BESIDE, CONTEXT = 16, 256  # requests that decode beside the chunks, and tokens of their prompts
KINDS = ("decode", "prefill", "w", "chunk")


def decode(core: EngineCore, batch: int, context: int) -> dict[str, Any]:
    """A greedy decode step."""
    start_decoding(core, random_prompts(batch, context), 2 * STEPS + PROMPT_STEPS)
    found = profile_steps(core.step, STEPS)
    finish(core)
    return {"case": "decode", "batch": batch, "context": context, **found}


def prefill(core: EngineCore) -> dict[str, Any]:
    """A step with two prompts of ``PREFILL`` tokens, others each time."""
    waiting = [random_prompts(2, PREFILL, seed=number) for number in range(1 + 2 * PREFILL_STEPS)]

    def step() -> None:
        add_requests(core, waiting.pop(), [1, 1], temperature=0.0)
        finish(core)

    step()  # warm
    return {"case": "prefill", "prompts": 2, "length": PREFILL, **profile_steps(step, PREFILL_STEPS)}


def chunks(shape: str) -> list[dict[str, Any]]:
    """The chunks of a long prompt beside ``BESIDE`` decodes: all of them timed, an early and a late one profiled."""
    core = make_core(shape, max_model_len=LONG + 256, max_num_batched_tokens=CHUNK, max_num_seqs=32)
    start_decoding(core, random_prompts(BESIDE, CONTEXT), 200)
    times = []
    for number in range(4):
        add_requests(core, random_prompts(1, LONG, seed=number), [1], temperature=0.0)
        times.append([timed(core.step) for _ in range(LONG // CHUNK)])
        compute_prompts(core, BESIDE)
    found: list[dict[str, Any]] = [{"case": "chunks", "ms": [statistics.median(ms) for ms in zip(*times, strict=True)]}]
    for behind in (2, LONG // CHUNK - 3):
        add_requests(core, random_prompts(1, LONG, seed=behind), [1], temperature=0.0)
        for _ in range(behind):
            core.step()
        found.append({"case": "chunk", "behind": behind * CHUNK, **profile_steps(core.step, 1)})
        compute_prompts(core, BESIDE)
    finish(core)
    core.shutdown()
    return found


def steps_of_w(core: EngineCore) -> dict[str, Any]:
    """Workload W, each step by the clock: what the steps of a kind take in all, by tokens of a step."""
    prompts, outputs = requests_of_w()
    add_requests(core, prompts, outputs, temperature=0.6)
    bins: dict[str, list[float]] = {}
    start = time.perf_counter()
    while core.has_work:
        began = time.perf_counter()
        core.step()
        took = (time.perf_counter() - began) * 1e3
        tokens = core.stats().scheduled_tokens
        kind = f"up to {-(-tokens // 32) * 32}" if tokens <= len(prompts) else "with prompts"
        bins.setdefault(kind, []).append(took)
    seconds = time.perf_counter() - start
    rows = [
        {"tokens": kind, "steps": len(ms), "seconds": sum(ms) / 1e3, "ms": statistics.median(ms)}
        for kind, ms in bins.items()
    ]
    return {"case": "w", "seconds": seconds, "output_tok_s": sum(outputs) / seconds, "steps": rows}


def measure(shape: str, what: set[str]) -> dict[str, Any]:
    """The cases of one shape."""
    cases: list[dict[str, Any]] = []
    if what & {"decode", "prefill", "w"}:
        core = make_core(shape)
        add_requests(core, random_prompts(4, PREFILL // 8), [8] * 4, temperature=0.6)  # warm
        finish(core)
        cases += [decode(core, *point) for point in DECODES] if "decode" in what else []
        cases += [prefill(core)] if "prefill" in what else []
        cases += [steps_of_w(core), steps_of_w(core)] if "w" in what else []
        core.shutdown()
        del core
        free_memory()
    if "chunk" in what:
        cases += chunks(shape)
        free_memory()
    return {"shape": shape, "cases": cases}


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["qwen3-8b", "smollm2-135m"])
    parser.add_argument("--what", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    require_gpu()
    result = {**provenance(args.commit), "stage": 2, "rates_before": device_rates(), "shapes": []}
    for shape in args.shapes:
        free_memory()
        result["shapes"].append(measure(shape, set(args.what)))
        print(json.dumps(result["shapes"][-1]), flush=True)
    result["rates_after"] = device_rates()
    if args.out is not None:
        write_result(args.out, "stage2_profile", result)


if __name__ == "__main__":
    main()
