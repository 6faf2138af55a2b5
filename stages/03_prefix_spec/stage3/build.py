"""The wiring of stage 3: a prefix cache around stage 2's engine.

vLLM: ``v1/engine/core.py`` (``EngineCore.__init__``).
"""

from __future__ import annotations

from collections.abc import Sequence

from stage1.config import DeviceConfig, ModelConfig, Settings, TraceConfig
from stage1.core import EngineCore
from stage1.interfaces import KVCacheManager, Scheduler
from stage1.lifecycle import Lifecycle
from stage1.trace.sinks import Sink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import open_tracer, start_event
from stage2.config import BatchConfig, CacheConfig, KernelConfig
from stage2.waiting import QUEUES
from stage2.worker import start_worker
from stage3.config import PrefixConfig
from stage3.parts import Parts as Parts
from stage3.prefix.scheduler import PrefixScheduler

CONFIGS = (ModelConfig, DeviceConfig, CacheConfig, PrefixConfig, BatchConfig, KernelConfig, TraceConfig)
SUPPORTED = frozenset({"priority", "cache_salt"})  # request features beyond the common ones


def build(settings: Settings, parts: Parts = Parts(), sinks: Sequence[Sink] = ()) -> EngineCore:
    """An engine core for ``settings``; events go to ``sinks`` and to the file that ``--trace`` names.

    Raises:
        ValueError: the model, the device or the memory does not fit the settings.
    """
    worker = start_worker(settings, parts)
    batch, block_size = settings[BatchConfig], worker.block_size
    start = start_event(3, worker.source.name, block_size, worker.num_blocks, batch.max_num_seqs)
    tracer = open_tracer(settings[TraceConfig].trace, sinks, start)
    pool = parts.block_pool(worker.num_blocks)

    def make_scheduler(manager: KVCacheManager) -> Scheduler:
        kv = TracedKV(manager, tracer)
        lifecycle = Lifecycle(kv, worker.source.max_model_len, (tracer,))
        queue = QUEUES[batch.scheduling_policy]()
        return parts.scheduler(lifecycle, kv, batch, queue, parts.chunk, parts.preemption)

    if not settings[PrefixConfig].enable_prefix_caching:
        return parts.core(make_scheduler(parts.kv_manager(pool, block_size)), worker.executor, tracer.close)
    prefix = parts.prefix_manager(pool, block_size, parts.cached_pool, parts.hash_block, parts.longest_hit)
    scheduler = PrefixScheduler(make_scheduler(prefix), prefix)
    return parts.core(scheduler, worker.executor, tracer.close, scheduler.reset_prefix_cache)
