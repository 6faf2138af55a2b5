"""The wiring of stage 1: which parts an engine is made of.

Read the six ``build.py`` side by side and you have read the course.

vLLM: ``v1/engine/core.py`` (``EngineCore.__init__``), ``v1/worker/gpu_worker.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from stage1.attention import Rotate, TorchAttention
from stage1.config import DeviceConfig, ModelConfig, SchedulerConfig, Settings, TraceConfig
from stage1.core import EngineCore
from stage1.executor import UniprocExecutor
from stage1.interfaces import (
    AttentionBackend,
    Executor,
    KVCacheManager,
    LogitsProcessor,
    Ops,
    Runner,
    Sampler,
    Scheduler,
)
from stage1.kv_cache import KVCache, kv_cache_bytes
from stage1.kv_manager import OneBlockKVManager
from stage1.lifecycle import Lifecycle
from stage1.logits_processors import default_processors
from stage1.model.load import load_model
from stage1.model.ops import TorchOps
from stage1.model.rope import apply_rope, rope_tables
from stage1.model.source import resolve, resolve_device, resolve_dtype
from stage1.runner import ModelRunner
from stage1.sampler import TorchSampler
from stage1.scheduler import StaticScheduler
from stage1.trace.sinks import Sink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import open_tracer, start_event

CONFIGS = (ModelConfig, DeviceConfig, SchedulerConfig, TraceConfig)
SUPPORTED: frozenset[str] = frozenset()  # request features beyond the common ones; later stages add theirs


@dataclass(frozen=True)
class Parts:
    """The replaceable parts, as factories: exercises and later stages swap one and keep the rest."""

    ops: Callable[[], Ops] = TorchOps
    rotate: Rotate = apply_rope
    attention: Callable[[KVCache, torch.Tensor, torch.Tensor, Rotate], AttentionBackend] = TorchAttention
    processors: Callable[[int, torch.device], Sequence[LogitsProcessor]] = default_processors
    sampler: Callable[[Sequence[LogitsProcessor]], Sampler] = TorchSampler
    kv_manager: Callable[[int, int], KVCacheManager] = OneBlockKVManager
    scheduler: Callable[[Lifecycle, KVCacheManager, int, int], Scheduler] = StaticScheduler
    runner: Callable[..., Runner] = ModelRunner
    executor: Callable[[Runner], Executor] = UniprocExecutor
    core: Callable[[Scheduler, Executor, Callable[[], None]], EngineCore] = EngineCore


def build(settings: Settings, parts: Parts = Parts(), sinks: Sequence[Sink] = ()) -> EngineCore:
    """An engine core for ``settings``; events go to ``sinks`` and to the file that ``--trace`` names.

    Raises:
        ValueError: the model, the device or the memory does not fit the settings.
    """
    source = resolve(settings[ModelConfig])
    device = resolve_device(settings[DeviceConfig])
    dtype = resolve_dtype(settings[ModelConfig], device)
    seats, block_size = settings[SchedulerConfig].max_num_seqs, source.max_model_len
    budget = settings[SchedulerConfig].token_budget(block_size)

    cache_bytes = kv_cache_bytes(source.shape, seats, block_size, dtype)
    model = load_model(source, parts.ops(), dtype, device, settings[ModelConfig].seed, cache_bytes)
    kv_cache = KVCache(source.shape, seats, block_size, dtype, device)
    attention = parts.attention(kv_cache, *rope_tables(source.shape, block_size, device), parts.rotate)
    processors = parts.processors(source.shape.vocab_size, device)
    runner = parts.runner(model, attention, parts.sampler(processors), processors, block_size, device)
    executor = parts.executor(runner)

    start = start_event(1, source.name, block_size, seats, seats)
    tracer = open_tracer(settings[TraceConfig].trace, sinks, start)
    kv = TracedKV(parts.kv_manager(seats, block_size), tracer)
    lifecycle = Lifecycle(kv, block_size, (tracer,))
    return parts.core(parts.scheduler(lifecycle, kv, seats, budget), executor, tracer.close)
