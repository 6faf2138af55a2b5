"""The replaceable parts of stage 2, and the set that a GPU gets.

vLLM: ``vllm/platforms/cuda.py`` (``get_attn_backend_cls``) makes the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from stage1.attention import Rotate, TorchAttention
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
from stage1.kv_cache import KVCache
from stage1.lifecycle import Lifecycle
from stage1.logits_processors import default_processors
from stage1.model.ops import TorchOps
from stage1.model.rope import apply_rope
from stage1.runner import ModelRunner
from stage1.sampler import TorchSampler
from stage2.config import BatchConfig
from stage2.kv_manager import PagedKVManager
from stage2.scheduler import ContinuousScheduler
from stage2.waiting import WaitingQueue


@dataclass(frozen=True)
class Parts:
    """The replaceable parts; those of stage 1 that are the same here keep their names."""

    ops: Callable[[], Ops] = TorchOps
    rotate: Rotate = apply_rope
    attention: Callable[[KVCache, torch.Tensor, torch.Tensor, Rotate], AttentionBackend] = TorchAttention
    processors: Callable[[int, torch.device], Sequence[LogitsProcessor]] = default_processors
    sampler: Callable[[Sequence[LogitsProcessor]], Sampler] = TorchSampler
    kv_manager: Callable[[int, int], KVCacheManager] = PagedKVManager
    scheduler: Callable[[Lifecycle, KVCacheManager, BatchConfig, WaitingQueue], Scheduler] = ContinuousScheduler
    runner: Callable[..., Runner] = ModelRunner
    executor: Callable[[Runner], Executor] = UniprocExecutor
    core: Callable[[Scheduler, Executor, Callable[[], None]], EngineCore] = EngineCore


def default_parts(backend: str, device: torch.device) -> Parts:
    """The plain parts, or with ``backend`` triton (auto: on a GPU) those with kernels."""
    if backend == "torch" or (backend == "auto" and device.type == "cpu"):
        return Parts()
    # Imported when wanted: Triton takes half a second, and not every machine has it.
    from stage2.attention import TritonAttention
    from stage2.ops import TritonOps

    return Parts(ops=TritonOps, attention=TritonAttention)
