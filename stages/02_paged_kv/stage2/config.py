"""Stage 2's settings: how the cache is divided, and how much a step holds.

vLLM: ``vllm/config/cache.py``, ``vllm/config/scheduler.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stage1.config import setting


@dataclass(frozen=True)
class CacheConfig:
    """The KV cache: its blocks, and the memory that they may take."""

    block_size: int = setting(16, "tokens of a block")
    gpu_memory_utilization: float = setting(0.9, "share of the GPU's memory for weights, activations and KV cache")
    kv_cache_memory_bytes: int | None = setting(None, "bytes of the KV cache; overrides the share")
    num_gpu_blocks_override: int | None = setting(None, "blocks of the KV cache; overrides both")

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size is {self.block_size}; a block holds at least 1 token")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(f"gpu_memory_utilization is {self.gpu_memory_utilization}; choose above 0 and at most 1")
        for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}; choose 1 or more, or leave --{name.replace('_', '-')} out")


@dataclass(frozen=True)
class BatchConfig:
    """How much runs at once, and who goes first."""

    max_num_seqs: int = setting(128, "requests in one step")
    max_num_batched_tokens: int = setting(2048, "tokens in one step; longer prompts are computed in pieces")
    long_prefill_token_threshold: int = setting(0, "most tokens of one request in a step; 0 = no limit but the step's")
    scheduling_policy: Literal["fcfs", "priority"] = setting("fcfs", "who is admitted first and preempted last")

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs is {self.max_num_seqs}; at least 1 request must fit: raise --max-num-seqs")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens is {self.max_num_batched_tokens} and max_num_seqs {self.max_num_seqs}: a step "
                "needs a token for each request; raise --max-num-batched-tokens or lower --max-num-seqs"
            )
        if self.long_prefill_token_threshold < 0:
            raise ValueError(f"long_prefill_token_threshold is {self.long_prefill_token_threshold}; 0 turns it off")


@dataclass(frozen=True)
class KernelConfig:
    """Which kernels compute."""

    attention_backend: Literal["auto", "torch", "triton"] = setting(
        "auto", "auto = triton on a GPU, torch on a CPU, where triton needs TRITON_INTERPRET=1"
    )
    enforce_eager: bool = setting(False, "launch every kernel by itself, without CUDA graphs")
