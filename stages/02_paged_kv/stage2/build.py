"""The wiring of stage 2: the paged cache and continuous batching around stage 1's model.

vLLM: ``v1/engine/core.py`` (``EngineCore.__init__``).
"""

from __future__ import annotations

from collections.abc import Sequence

from stage1.config import DeviceConfig, ModelConfig, Settings, TraceConfig
from stage1.core import EngineCore
from stage1.lifecycle import Lifecycle
from stage1.trace.sinks import Sink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import open_tracer, start_event
from stage2.config import BatchConfig, CacheConfig, KernelConfig
from stage2.parts import Parts as Parts
from stage2.waiting import QUEUES
from stage2.worker import start_worker

CONFIGS = (ModelConfig, DeviceConfig, CacheConfig, BatchConfig, KernelConfig, TraceConfig)
SUPPORTED = frozenset({"priority"})  # request features beyond the common ones


def build(settings: Settings, parts: Parts = Parts(), sinks: Sequence[Sink] = ()) -> EngineCore:
    """An engine core for ``settings``; events go to ``sinks`` and to the file that ``--trace`` names.

    Where ``parts`` leaves a choice, ``--attention-backend`` makes it.

    Raises:
        ValueError: the model, the device or the memory does not fit the settings.
    """
    worker = start_worker(settings, parts)
    batch, block_size = settings[BatchConfig], worker.block_size

    start = start_event(2, worker.source.name, block_size, worker.num_blocks, batch.max_num_seqs)
    tracer = open_tracer(settings[TraceConfig].trace, sinks, start)
    kv = TracedKV(parts.kv_manager(parts.block_pool(worker.num_blocks), block_size), tracer)
    lifecycle = Lifecycle(kv, worker.source.max_model_len, (tracer,))
    queue = QUEUES[batch.scheduling_policy]()
    scheduler = parts.scheduler(lifecycle, kv, batch, queue, parts.chunk, parts.preemption)
    return parts.core(scheduler, worker.executor, tracer.close)
