"""The memory behind the KV blocks: one tensor a layer.

Owns the bytes. Does not know which request owns which block: that is the KV manager's, in the scheduler's process.

    layer i   [2 (k, v), num_blocks, block_size, kv_heads, head_dim]
    slot      block_id * block_size + offset in the block; a layer by slot is [2, num_slots, kv_heads, head_dim]

A block takes 2 * block_size * kv_heads * head_dim * bytes of the dtype, in each layer.

vLLM: ``v1/worker/gpu_model_runner.py`` (``initialize_kv_cache``), ``v1/kv_cache_interface.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stage1.model.shape import ModelShape


class KVCache:
    """Keys and values of every layer of one model, or of several that share the blocks.

    On a CPU the memory is only reserved: the system commits a page when it is first written, so a cache for eight
    requests of 8,192 tokens costs what the tokens really used cost.
    """

    def __init__(
        self,
        shape: ModelShape,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        further_shapes: Sequence[ModelShape] = (),
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.layers = [
            torch.empty((2, num_blocks, block_size, shape.num_kv_heads, shape.head_dim), dtype=dtype, device=device)
            for shape in (shape, *further_shapes)
            for _ in range(shape.num_layers)
        ]

    def slots(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of ``layer`` as views by slot, each [num_blocks * block_size, kv_heads, head_dim]."""
        keys, values = self.layers[layer].flatten(1, 2)
        return keys, values


def kv_cache_bytes(shape: ModelShape, num_blocks: int, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of the whole cache when every page is in use."""
    return num_blocks * block_size * shape.kv_bytes_per_token(dtype)
