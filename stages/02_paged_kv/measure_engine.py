"""Measure this stage's engine on a GPU: decode steps, prefill, workload W, memory; stage 1 and transformers beside it.

    python stages/02_paged_kv/measure_engine.py --shapes qwen3-0.6b qwen3-8b --out stages/06_benchmark/results

Weights are random, prompts are token ids, EOS is ignored, and every figure stands beside the bandwidth and the matmul
rate of the same run, as in ``stages/01_single_gpu/measure.py``, whose workload W this takes. Loading, capturing graphs
and warming up are outside the clock. Each run is one JSON file with GPU, versions, commit and date.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers

from stage1.config import ModelConfig, Settings
from stage1.core import EngineCore
from stage1.model.shape import ModelShape
from stage1.model.source import resolve
from stage2.build import CONFIGS, build

ROUNDS = 3
DECODES = ((1, 128), (8, 128), (64, 128), (256, 128), (64, 3500))  # batch, context
MAX_LEN = 4608
BUDGET = 8192
PREFILL = (8, 4000)  # prompts, tokens each


def stage_1_measure() -> ModuleType:
    """Stage 1's script as a module: it is not in a package."""
    path = Path(__file__).parents[1] / "01_single_gpu" / "measure.py"
    spec = importlib.util.spec_from_file_location("stage1_measure", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


base = stage_1_measure()


def make_core(shape: str, **settings: Any) -> EngineCore:
    """This stage's engine with random weights and 256 seats."""
    chosen = {"model": shape, "load_format": "dummy", "max_model_len": MAX_LEN, "max_num_seqs": 256}
    return build(Settings.from_keywords(CONFIGS, {**chosen, "max_num_batched_tokens": BUDGET, **settings}))


def prompts(count: int, length: int, seed: int = 0) -> list[list[int]]:
    """Random token ids."""
    rng = random.Random(f"{count} {length} {seed}")
    return [[rng.randrange(10, base.MAX_ID) for _ in range(length)] for _ in range(count)]


def timed(run: Callable[[], Any]) -> float:
    """Milliseconds of ``run`` by the wall clock, the device's work included."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def finish(core: EngineCore) -> None:
    """Run until nothing is left."""
    while core.has_work:
        core.step()


def start_decoding(core: EngineCore, batch: int, context: int, steps: int) -> None:
    """Bring ``batch`` requests of ``context`` tokens to their decode steps, with ``steps`` to go."""
    base.add(core, prompts(batch, context), [steps + 8] * batch, temperature=0.0)
    while core.stats().scheduled_tokens != batch:
        core.step()
    for _ in range(4):
        core.step()


def decode(core: EngineCore, batch: int, context: int, steps: int = 48) -> dict[str, float]:
    """One greedy decode step: its mean by the wall clock, and by CUDA events around its launches."""
    start_decoding(core, batch, context, steps)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    wall = timed(lambda: [core.step() for _ in range(steps)]) / steps
    end.record()
    end.synchronize()
    finish(core)
    return {"batch": batch, "context": context, "wall_ms": wall, "event_ms": begin.elapsed_time(end) / steps}


def prefill(core: EngineCore, count: int, length: int, shape: ModelShape, matmul: float) -> dict[str, float]:
    """All prompts at once, one token each: milliseconds, and the model's operations over what a matmul would do."""
    base.add(core, prompts(count, length, seed=time.monotonic_ns()), [1] * count, temperature=0.0)
    wall = timed(lambda: finish(core))
    weights = layer_weights(shape)
    attention = shape.num_layers * shape.num_heads * shape.head_dim * 2 * length * length  # causal: half of 4 n²
    flops = count * (2 * weights * length + attention) + count * 2 * shape.vocab_size * shape.hidden_size
    return {"prompts": count, "length": length, "wall_ms": wall, "mfu_of_matmul": flops / (wall * 1e9 * matmul)}


def layer_weights(shape: ModelShape) -> int:
    """Weights that a token is multiplied with, without the projection to logits."""
    qkv = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    per_layer = shape.hidden_size * (qkv + shape.num_heads * shape.head_dim + 3 * shape.intermediate_size)
    return shape.num_layers * per_layer


def cache_share(core: EngineCore, utilisation: float = 0.9) -> dict[str, float]:
    """Bytes of the KV blocks over what the utilisation leaves beside the weights."""
    runner = core.executor._runner  # type: ignore[attr-defined]
    cache = sum(layer.nbytes for layer in runner._attention.kv_cache.layers)
    weights = sum(p.nbytes for p in {id(p): p for p in runner._model.parameters()}.values())
    free, total = torch.cuda.mem_get_info()
    allowed = utilisation * total - weights
    return {"cache_gib": cache / 2**30, "share": cache / allowed, "used_of_gpu": 1 - free / total}


def earlier_stage(name: str) -> list[dict[str, float]]:
    """Decode steps of stage 1, in the same run."""
    core = base.make_core(1, name)
    base.decode_step(core, 1)
    rows = [base.decode_step(core, batch) for batch in (1, 64, 256)]
    core.shutdown()
    return rows


def library_generate(shape: ModelShape, batch: int, tokens: int = 32) -> dict[str, float]:
    """Milliseconds a token of transformers' ``generate``, with its default cache and not compiled."""
    sizes = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "tie_word_embeddings": shape.tie_embeddings,
    }
    kind = transformers.Qwen3Config if shape.qk_norm else transformers.LlamaConfig
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(kind(**sizes), dtype=torch.bfloat16).eval()
    ids = torch.tensor(prompts(batch, 128), device="cuda")
    mask = torch.ones_like(ids)
    options = {"attention_mask": mask, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    model.generate(ids, max_new_tokens=4, **options)

    def milliseconds(count: int) -> float:
        return timed(lambda: model.generate(ids, max_new_tokens=count, min_new_tokens=count, **options))

    return {"batch": batch, "ms_a_token": (milliseconds(1 + tokens) - milliseconds(1)) / tokens}


def measure(name: str, what: set[str], matmul: float) -> dict[str, Any]:
    """Everything for one shape: medians of ``ROUNDS`` rounds with their spread."""
    start = time.perf_counter()
    core = make_core(name)
    shape = resolve(ModelConfig(model=name, load_format="dummy")).shape
    found: dict[str, Any] = {"shape": name, "start_s": time.perf_counter() - start, "memory": cache_share(core)}
    decode(core, 1, 128, 8)
    prefill(core, *PREFILL, shape, matmul)
    if "decode" in what:
        rows = [[decode(core, *point) for point in DECODES] for _ in range(ROUNDS)]
        found["decode"] = [base.spread(list(column), "wall_ms") for column in zip(*rows, strict=True)]
    if "prefill" in what:
        found["prefill"] = base.spread([prefill(core, *PREFILL, shape, matmul) for _ in range(ROUNDS)], "wall_ms")
    if "w" in what:
        found["workload_w"] = base.spread([base.workload(core) for _ in range(ROUNDS)], "output_tok_s")
    core.shutdown()
    del core
    if "prefill" in what and shape.max_position > 8200:
        core = make_core(name, max_model_len=8200)
        rows = [prefill(core, 1, 8192, shape, matmul) for _ in range(ROUNDS + 1)]
        found["prefill_8192"] = base.spread(rows[1:], "wall_ms")
        core.shutdown()
        del core
    if "others" in what:
        found["stage_1"] = earlier_stage(name)
        found["generate"] = [library_generate(shape, batch) for batch in (1, 64)]
    return found


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["qwen3-8b", "qwen3-0.6b", "smollm2-135m"])
    parser.add_argument("--what", nargs="+", default=["decode", "prefill", "w", "others"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", help="commit to write down where there is no git")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA GPU is there: nothing to measure")
    result = {**base.provenance(args.commit), "stage": 2, "rates_before": base.device_rates(), "shapes": []}
    print(json.dumps(result["rates_before"]), flush=True)
    name = f"stage2_engine_{result['gpu'].replace(' ', '-').lower()}_{result['date'][:10]}.json"
    for shape in args.shapes:
        gc.collect()
        torch.cuda.empty_cache()
        result["shapes"].append(measure(shape, set(args.what), result["rates_before"]["matmul_tflop_s"]))
        print(json.dumps(result["shapes"][-1]), flush=True)
        gc.collect()
        torch.cuda.empty_cache()
        result["rates_after"] = base.device_rates()
        if args.out is not None:  # after each shape: what is measured is kept
            args.out.mkdir(parents=True, exist_ok=True)
            (args.out / name).write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["rates_after"]))


if __name__ == "__main__":
    main()
