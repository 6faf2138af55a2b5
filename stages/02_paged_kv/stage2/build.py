"""The wiring of stage 2: the paged cache and continuous batching around stage 1's model and runner.

vLLM: ``v1/engine/core.py`` (``EngineCore.__init__``), ``v1/worker/gpu_worker.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from stage1.config import DeviceConfig, ModelConfig, Settings, TraceConfig
from stage1.core import EngineCore
from stage1.kv_cache import KVCache
from stage1.lifecycle import Lifecycle
from stage1.model.load import load_model
from stage1.model.rope import rope_tables
from stage1.model.source import resolve, resolve_device, resolve_dtype
from stage1.trace.sinks import Sink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import open_tracer, start_event
from stage2.config import BatchConfig, CacheConfig, KernelConfig
from stage2.kv_memory import count_blocks
from stage2.parts import Parts as Parts
from stage2.parts import with_kernels
from stage2.profile import ProfileRun
from stage2.runner import PagedRunner, StepLimits
from stage2.waiting import QUEUES

CONFIGS = (ModelConfig, DeviceConfig, CacheConfig, BatchConfig, KernelConfig, TraceConfig)
SUPPORTED = frozenset({"priority"})  # request features beyond the common ones


def build(settings: Settings, parts: Parts = Parts(), sinks: Sequence[Sink] = ()) -> EngineCore:
    """An engine core for ``settings``; events go to ``sinks`` and to the file that ``--trace`` names.

    Where ``parts`` leaves a choice, ``--attention-backend`` makes it.

    Raises:
        ValueError: the model, the device or the memory does not fit the settings.
    """
    source = resolve(settings[ModelConfig])
    device = resolve_device(settings[DeviceConfig])
    dtype = resolve_dtype(settings[ModelConfig], device)
    parts = with_kernels(parts, settings[KernelConfig].attention_backend, device)
    batch, block_size = settings[BatchConfig], settings[CacheConfig].block_size
    limits = StepLimits(batch.max_num_seqs, batch.max_num_batched_tokens, source.max_model_len, block_size)
    model = load_model(source, parts.ops(), dtype, device, settings[ModelConfig].seed, cache_bytes=0)
    processors = parts.processors(source.shape.vocab_size, device)
    tables = rope_tables(source.shape, source.max_model_len, device)

    def make_runner(num_blocks: int) -> PagedRunner:
        kv_cache = KVCache(source.shape, num_blocks, block_size, dtype, device)
        attention = parts.attention(kv_cache, *tables, parts.rotate)
        sampler = parts.sampler(processors)
        return parts.runner(model, attention, sampler, processors, limits, device, parts.inputs, parts.slots)

    captures = not settings[KernelConfig].enforce_eager
    profile = ProfileRun(make_runner, limits, captures)
    num_blocks = count_blocks(settings[CacheConfig], source.shape, dtype, device, source.max_model_len, profile)
    executor = parts.executor(make_runner(num_blocks))
    if captures:
        executor.call("capture_graphs")

    start = start_event(2, source.name, block_size, num_blocks, batch.max_num_seqs)
    tracer = open_tracer(settings[TraceConfig].trace, sinks, start)
    kv = TracedKV(parts.kv_manager(parts.block_pool(num_blocks), block_size), tracer)
    lifecycle = Lifecycle(kv, source.max_model_len, (tracer,))
    queue = QUEUES[batch.scheduling_policy]()
    scheduler = parts.scheduler(lifecycle, kv, batch, queue, parts.chunk, parts.preemption)
    return parts.core(scheduler, executor, tracer.close)
