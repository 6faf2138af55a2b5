"""Measure this stage's engine on a GPU: decode steps, prefill, workload W, memory; stage 1 and transformers beside it.

    python stages/02_paged_kv/measure_engine.py --shapes qwen3-0.6b qwen3-8b --out stages/06_benchmark/results

Weights are random, prompts are token ids, EOS is ignored, and every figure stands beside the bandwidth and the matmul
rate of the same run, as in ``stages/01_single_gpu/measure.py``, whose workload W this takes. Loading, capturing graphs
and warming up are outside the clock. Each run is one JSON file with GPU, versions, commit and date.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from stage1 import build as stage_1
from stage1 import workloads
from stage1.config import ModelConfig
from stage1.core import EngineCore
from stage1.measuring import device_rates, free_memory, provenance, require_gpu, spread, timed, write_result
from stage1.model.shape import ModelShape
from stage1.model.source import resolve
from stage1.workloads import add_requests, decode_step, finish, random_prompts, start_decoding, take_steps, workload
from stage2.measured import make_core

ROUNDS = 3
DECODES = ((1, 128), (8, 128), (64, 128), (256, 128), (64, 3500))  # batch, context
PREFILL = (8, 4000)  # prompts, tokens each
EARLIER_BATCHES = (1, 64, 256)  # of stage 1


def decode(core: EngineCore, batch: int, context: int, steps: int = 48) -> dict[str, float]:
    """One greedy decode step: its mean by the wall clock, and by CUDA events around its launches."""
    start_decoding(core, random_prompts(batch, context), steps)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    wall = timed(lambda: take_steps(core, steps)) / steps
    end.record()
    end.synchronize()
    finish(core)
    return {"batch": batch, "context": context, "wall_ms": wall, "event_ms": begin.elapsed_time(end) / steps}


def prefill(core: EngineCore, count: int, length: int, shape: ModelShape, matmul: float) -> dict[str, float]:
    """All prompts at once, one token each: milliseconds, and the model's operations over what a matmul would do."""
    add_requests(core, random_prompts(count, length, seed=time.monotonic_ns()), [1] * count, temperature=0.0)
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
    core = workloads.make_core(stage_1, name, **workloads.SIZES)
    decode_step(core, 1)
    rows = [decode_step(core, batch) for batch in EARLIER_BATCHES]
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
    ids = torch.tensor(random_prompts(batch, 128), device="cuda")
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
        found["decode"] = [spread(list(column), "wall_ms") for column in zip(*rows, strict=True)]
    if "prefill" in what:
        found["prefill"] = spread([prefill(core, *PREFILL, shape, matmul) for _ in range(ROUNDS)], "wall_ms")
    if "w" in what:
        found["workload_w"] = spread([workload(core) for _ in range(ROUNDS)], "output_tok_s")
    core.shutdown()
    del core
    if "prefill" in what and shape.max_position > 8200:
        core = make_core(name, max_model_len=8200)
        long = [prefill(core, 1, 8192, shape, matmul) for _ in range(ROUNDS + 1)]
        found["prefill_8192"] = spread(long[1:], "wall_ms")
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
    require_gpu()
    result = {**provenance(args.commit), "stage": 2, "rates_before": device_rates(), "shapes": []}
    print(json.dumps(result["rates_before"]), flush=True)
    for shape in args.shapes:
        free_memory()
        result["shapes"].append(measure(shape, set(args.what), result["rates_before"]["matmul_tflop_s"]))
        print(json.dumps(result["shapes"][-1]), flush=True)
        free_memory()
        result["rates_after"] = device_rates()
        if args.out is not None:  # after each shape: what is measured is kept
            write_result(args.out, "stage2_engine", result)
    print(json.dumps(result["rates_after"]))


if __name__ == "__main__":
    main()
