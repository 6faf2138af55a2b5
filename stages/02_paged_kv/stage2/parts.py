"""The replaceable parts of stage 2, and the set that a GPU gets.

vLLM: ``vllm/platforms/cuda.py`` (``get_attn_backend_cls``) makes the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from stage1.logits_processors import default_processors
from stage1.model.ops import TorchOps
from stage1.model.rope import apply_rope
from stage1.model.shape import ModelShape
from stage1.sampler import TorchSampler
from stage2.block_pool import BlockPool
from stage2.chunking import chunk
from stage2.inputs import PlainInputs, SlotMapping
from stage2.kv_manager import PagedKVManager
from stage2.preemption import Preemption
from stage2.runner import Inputs, PagedRunner
from stage2.scheduler import ContinuousScheduler
from stage2.slots import slot_mapping
from stage2.waiting import WaitingQueue
from stage2.warm_up import WarmUp, warm_up_plans


@dataclass(frozen=True)
class Parts:
    """The replaceable parts; those of stage 1 that are the same here keep their names."""

    ops: Callable[[], Ops] = TorchOps
    rotate: Rotate = apply_rope
    attention: Callable[[KVCache, torch.Tensor, torch.Tensor, Rotate], AttentionBackend] = TorchAttention
    processors: Callable[[int, torch.device], Sequence[LogitsProcessor]] = default_processors
    sampler: Callable[[Sequence[LogitsProcessor]], Sampler] = TorchSampler
    inputs: Inputs = PlainInputs
    slots: SlotMapping = slot_mapping
    attend_kernel: Any = None  # None = the stage's own kernel, which is imported only where kernels run
    merge_kernel: Any = None
    block_pool: Callable[[int], BlockPool] = BlockPool
    kv_manager: Callable[[BlockPool, int], KVCacheManager] = PagedKVManager
    chunk: Callable[[int, int, int], int] = chunk
    preemption: Callable[[KVCacheManager, WaitingQueue], Preemption] = Preemption
    scheduler: Callable[..., Scheduler] = ContinuousScheduler
    further_shapes: Sequence[ModelShape] = ()  # whose layers lie in the same blocks, behind the model's: a drafter's
    runner: Callable[..., PagedRunner] = PagedRunner
    warm_up: WarmUp = warm_up_plans
    executor: Callable[[Runner], Executor] = UniprocExecutor
    core: Callable[[Scheduler, Executor, Callable[[], None]], EngineCore] = EngineCore


def with_kernels(parts: Parts, backend: str, device: torch.device) -> Parts:
    """``parts`` with Triton kernels in place of the plain ones, where ``backend`` asks for them.

    ``auto`` does on a GPU, and wherever a kernel was replaced: whoever brings one wants to see it run. A part that was
    replaced stays as it is; a replaced rotation or slot mapping keeps the plain code that calls it.

    Raises:
        ValueError: a replaced kernel would not run, or kernels cannot run on ``device``.
    """
    replaced = {"attend": parts.attend_kernel, "merge": parts.merge_kernel}
    kernels = {name: kernel for name, kernel in replaced.items() if kernel is not None}
    if kernels and backend == "torch":
        raise ValueError(
            f"the {' and '.join(kernels)} kernel is replaced, and the torch backend launches none: choose "
            "--attention-backend triton, or leave the kernel as it is"
        )
    if backend == "torch" or (backend == "auto" and device.type == "cpu" and not kernels):
        return parts
    # Imported when wanted: Triton takes half a second, and not every machine has it.
    from stage2.attention import TritonAttention
    from stage2.kernels.decode_attention import DecodeKernels
    from stage2.kernels.split_attention import INTERPRETED
    from stage2.kernels.step_inputs import TritonInputs
    from stage2.ops import TritonOps
    from stage2.sampler import TritonSampler

    if device.type == "cpu" and not INTERPRETED.value:
        raise ValueError(
            "Triton's kernels run on a CPU only in its interpreter: set TRITON_INTERPRET=1 before Python starts, or "
            "choose --attention-backend torch"
        )
    if parts.ops is TorchOps:
        parts = replace(parts, ops=TritonOps)
    if parts.sampler is TorchSampler:
        parts = replace(parts, sampler=TritonSampler)
    if parts.inputs is PlainInputs and parts.slots is slot_mapping:
        parts = replace(parts, inputs=TritonInputs)
    if parts.attention is TorchAttention and parts.rotate is apply_rope:
        return replace(parts, attention=partial(TritonAttention, kernels=DecodeKernels(**kernels)))
    if kernels:
        raise ValueError(
            f"the {' and '.join(kernels)} kernel is replaced, and so is {_plain_part(parts)}, which runs in torch "
            "alone: replace one of the two"
        )
    return parts


def _plain_part(parts: Parts) -> str:
    """The replaced part that keeps attention in torch."""
    return "attention" if parts.attention is not TorchAttention else "rotate"
