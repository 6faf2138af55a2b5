"""What computes: the model on its device, the cache in the memory that is left, the graphs.

Owns the order in which they come to life. Does not know requests, schedulers or traces.

    weights → a runner with a small cache, to measure → the number of blocks → the runner with its cache → graphs
    → steps that compile the rest, unless something was measured

vLLM: ``v1/worker/gpu_worker.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from stage1.config import DeviceConfig, ModelConfig, Settings
from stage1.interfaces import Executor
from stage1.kv_cache import KVCache
from stage1.model.load import load_model
from stage1.model.rope import rope_tables
from stage1.model.source import ModelSource, resolve, resolve_device, resolve_dtype
from stage1.records import SchedulerOutput
from stage2.config import BatchConfig, CacheConfig, KernelConfig
from stage2.graphs import most_graph_tokens
from stage2.inputs import MOST_FEW
from stage2.kv_memory import count_blocks
from stage2.parts import Parts, with_kernels
from stage2.profile import ProfileRun
from stage2.runner import PagedRunner, StepLimits
from stage2.warm_up import WarmUpLimits


@dataclass(frozen=True)
class Worker:
    """A runner behind its executor, ready for plans."""

    executor: Executor
    source: ModelSource
    num_blocks: int
    block_size: int


def start_worker(settings: Settings, parts: Parts) -> Worker:
    """Load the model, size the cache and capture the graphs, as ``settings`` say and with ``parts``.

    Raises:
        ValueError: the model, the device or the memory does not fit the settings.
    """
    source = resolve(settings[ModelConfig])
    device = resolve_device(settings[DeviceConfig])
    dtype = resolve_dtype(settings[ModelConfig], device)
    parts = with_kernels(parts, settings[KernelConfig].attention_backend, device)
    batch, block_size = settings[BatchConfig], settings[CacheConfig].block_size
    model = load_model(source, parts.ops(), dtype, device, settings[ModelConfig].seed, cache_bytes=0)
    graph_tokens = most_graph_tokens(sum(weights.numel() for weights in model.layers.parameters()))
    sizes = (batch.max_num_seqs, batch.max_num_batched_tokens, source.max_model_len, block_size)
    limits = StepLimits(*sizes, graph_tokens)
    processors = parts.processors(source.shape.vocab_size, device)
    tables = rope_tables(source.shape, source.max_model_len, device)
    shapes = (source.shape, *parts.further_shapes)

    def make_runner(num_blocks: int) -> PagedRunner:
        kv_cache = KVCache(source.shape, num_blocks, block_size, dtype, device, parts.further_shapes)
        attention = parts.attention(kv_cache, *tables, parts.rotate)
        sampler = parts.sampler(processors)
        return parts.runner(model, attention, sampler, processors, limits, device, parts.inputs, parts.slots)

    def made_up_steps(num_blocks: int) -> list[SchedulerOutput]:
        max_len = min(source.max_model_len, num_blocks * block_size) - MOST_FEW
        if device.type != "cuda" or max_len <= 0:
            return []
        possible = WarmUpLimits(limits.max_reqs, limits.max_tokens, max_len, block_size, source.shape.vocab_size)
        return list(parts.warm_up(possible))

    captures = not settings[KernelConfig].enforce_eager
    profile = ProfileRun(make_runner, limits, captures, made_up_steps)
    num_blocks = count_blocks(settings[CacheConfig], shapes, dtype, device, source.max_model_len, profile)
    executor = parts.executor(make_runner(num_blocks))
    if captures:
        executor.call("capture_graphs")
    if not profile.is_warm:
        executor.call("warm_up", made_up_steps(num_blocks))
    return Worker(executor, source, num_blocks, block_size)
