"""How many blocks the KV cache gets.

Owns the arithmetic. On a GPU the share that ``gpu_memory_utilization`` allows must hold weights, the activations of the
largest step, the CUDA graphs, the kernels and the cache; all but the last are measured, the cache gets the rest. On a
CPU the pages of the cache are committed when they are touched, so a fixed size does, unless a setting names another.

vLLM: ``v1/core/kv_cache_utils.py`` (``get_kv_cache_config``), ``v1/worker/gpu_worker.py``
(``determine_available_memory``).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence

import torch

from stage1.memory import check_memory
from stage1.model.shape import ModelShape
from stage2.config import CacheConfig
from stage2.profile import ProfileRun

logger = logging.getLogger(__name__)

CPU_CACHE_BYTES = 4 << 30
SEGMENT = 2 << 20  # bytes to which torch rounds up each layer's tensor on a GPU
GIB = 1 << 30
CONTEXT = 2 * GIB  # what CUDA keeps for this process and its code, at most


def count_blocks(
    config: CacheConfig,
    shapes: Sequence[ModelShape],
    dtype: torch.dtype,
    device: torch.device,
    max_model_len: int,
    profile: ProfileRun,
) -> int:
    """Blocks of the cache.

    Args:
        shapes: whose layers lie in each block.
        profile: what is measured on a GPU, and not run elsewhere.

    Raises:
        ValueError: the cache cannot hold one request of ``max_model_len``, or no memory is left for it.
    """
    block_bytes = config.block_size * sum(shape.kv_bytes_per_token(dtype) for shape in shapes)
    needed = -(-max_model_len // config.block_size)
    if config.num_gpu_blocks_override is not None:
        if config.num_gpu_blocks_override < needed:
            logger.warning(
                "%d blocks cannot hold a request of max_model_len (%d tokens): longer ones end with an error",
                config.num_gpu_blocks_override,
                max_model_len,
            )
        _check_setting(config.num_gpu_blocks_override * block_bytes, "--num-gpu-blocks-override", device)
        return config.num_gpu_blocks_override
    if config.kv_cache_memory_bytes is not None:
        room = config.kv_cache_memory_bytes
        _check_setting(room, "--kv-cache-memory-bytes", device)
    elif device.type == "cpu":
        room = CPU_CACHE_BYTES
    else:
        num_layers = sum(shape.num_layers for shape in shapes)
        room = _gpu_room(config, device, profile, block_bytes) - num_layers * SEGMENT
    blocks = room // block_bytes
    if blocks < needed:
        raise ValueError(
            f"the KV cache has room for {max(blocks, 0):,} blocks ({room / GIB:.2f} GiB) and a request of "
            f"max_model_len ({max_model_len:,} tokens) needs {needed:,} ({needed * block_bytes / GIB:.2f} GiB): lower "
            "--max-model-len, or raise --gpu-memory-utilization or --kv-cache-memory-bytes"
        )
    return blocks


def _check_setting(need: int, flag: str, device: torch.device) -> None:
    check_memory(need, flag, device, verb="asks for", remedy="lower it, or leave it out")


def _gpu_room(config: CacheConfig, device: torch.device, profile: ProfileRun, block_bytes: int) -> int:
    """Bytes that the utilisation leaves beside what is in use and what a step and the graphs add."""
    gc.collect()  # an engine that was just shut down may still hold its cache in a cycle
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    allowed = int(total * config.gpu_memory_utilization)
    held = torch.cuda.memory_reserved(device)
    others = max(total - free - held - CONTEXT, 0)  # other programs': the share is of the whole GPU, and ours
    if free + held < allowed:
        raise ValueError(
            f"{(free + held) / GIB:.2f} GiB of the GPU's {total / GIB:.2f} are free and --gpu-memory-utilization "
            f"{config.gpu_memory_utilization} asks for {allowed / GIB:.2f} GiB: end other programs, or lower it"
        )
    torch.cuda.reset_peak_memory_stats(device)
    try:
        runner = profile.run()
        torch.cuda.synchronize(device)
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"the GPU has {free / GIB:.2f} GiB free beside the weights, too little for the largest step: lower "
            "--max-num-batched-tokens"
        ) from error
    peak = torch.cuda.max_memory_allocated(device) - profile.num_blocks * block_bytes
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved(device)
    profile.capture(runner)
    pools = torch.cuda.memory_reserved(device) - reserved
    profile.warm_up(runner)
    free = torch.cuda.mem_get_info(device)[0]
    outside = total - free - torch.cuda.memory_reserved(device)  # other programs, the context, launches of graphs, code
    del runner
    torch.cuda.empty_cache()
    return allowed - (outside - others) - peak - pools
