"""The wiring of stage 3: a prefix cache, grammars and speculation around stage 2's engine.

vLLM: ``v1/engine/core.py`` (``EngineCore.__init__``).
"""

from __future__ import annotations

from collections.abc import Sequence

from stage1.config import DeviceConfig, ModelConfig, Settings, TraceConfig
from stage1.core import EngineCore
from stage1.interfaces import KVCacheManager, Scheduler, SchedulerHook
from stage1.lifecycle import Lifecycle
from stage1.model.tokenizer import load_tokenizer
from stage1.trace.sinks import Sink
from stage1.trace.traced_kv import TracedKV
from stage1.trace.tracer import open_tracer, start_event
from stage2.config import BatchConfig, CacheConfig, KernelConfig
from stage2.waiting import QUEUES
from stage2.worker import start_worker
from stage3.config import PrefixConfig, SpeculativeConfig
from stage3.grammar.compiler import GrammarCompiler
from stage3.grammar.hook import GrammarHook
from stage3.grammar.token_fsm import mask_maker
from stage3.grammar.vocabulary import load_vocabulary
from stage3.parts import Parts as Parts
from stage3.prefix.scheduler import PrefixScheduler
from stage3.spec.accept import AcceptanceCounter
from stage3.spec.scheduling import DraftLimits, Speculation
from stage3.spec.wiring import speculating, with_lookahead

CONFIGS = (
    *(ModelConfig, DeviceConfig, CacheConfig, PrefixConfig),
    *(BatchConfig, SpeculativeConfig, KernelConfig, TraceConfig),
)
SUPPORTED = frozenset({"priority", "cache_salt", "structured_outputs"})  # request features beyond the common ones


def build(settings: Settings, parts: Parts = Parts(), sinks: Sequence[Sink] = ()) -> EngineCore:
    """An engine core for ``settings``; events go to ``sinks`` and to the file that ``--trace`` names.

    Raises:
        ValueError: the model, the device or the memory does not fit the settings.
    """
    batch, rules = settings[BatchConfig], settings[SpeculativeConfig].rules()
    if rules is not None:
        parts = speculating(parts, rules, settings)
    worker = start_worker(settings, parts)
    block_size = worker.block_size
    start = start_event(3, worker.source.name, block_size, worker.num_blocks, batch.max_num_seqs)
    tracer = open_tracer(settings[TraceConfig].trace, sinks, start)
    pool = parts.block_pool(worker.num_blocks)
    compiler = GrammarCompiler(
        lambda: load_vocabulary(load_tokenizer(worker.source), worker.source.shape.vocab_size),
        make_mask=mask_maker(parts.allowed_tokens, parts.pack),
    )
    grammar = GrammarHook(compiler, matcher=parts.matcher, drafts_are_drawn=rules is not None and rules.draws)
    counter = AcceptanceCounter(0 if rules is None else rules.num_speculative_tokens)

    def make_scheduler(manager: KVCacheManager) -> Scheduler:
        kv = TracedKV(with_lookahead(manager, rules), tracer)
        hooks: list[SchedulerHook] = [grammar, tracer]
        spare = batch.max_num_batched_tokens - batch.max_num_seqs
        if rules is not None and spare > 0:
            limits = DraftLimits(rules.num_speculative_tokens, rules.max_batch, spare)
            hooks.insert(1, Speculation(kv, limits, counter))  # reads what the grammar cut, and the tracer reads both
        lifecycle = Lifecycle(kv, worker.source.max_model_len, hooks)
        grammar.doom = lifecycle.doom
        queue = QUEUES[batch.scheduling_policy]()
        return parts.scheduler(lifecycle, kv, batch, queue, parts.chunk, parts.preemption)

    def close() -> None:
        tracer.close()
        compiler.shutdown()

    def make_core(scheduler: Scheduler, *reset: object) -> EngineCore:
        return parts.core(scheduler, worker.executor, close, *reset, fill=counter.fill)

    if not settings[PrefixConfig].enable_prefix_caching:
        return make_core(make_scheduler(parts.kv_manager(pool, block_size)))
    recompute = 0 if rules is None else rules.blocks_to_recompute
    prefix = parts.prefix_manager(pool, block_size, parts.cached_pool, parts.hash_block, parts.longest_hit, recompute)
    scheduler = PrefixScheduler(make_scheduler(prefix), prefix)
    return make_core(scheduler, scheduler.reset_prefix_cache)
