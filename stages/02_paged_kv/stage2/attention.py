"""Paged attention with Triton kernels: two or three launches a layer, nothing padded, nothing copied.

Owns the order of the launches and the choice between them. Does not know requests; the kernels are in ``kernels/``, and
``stage1.attention.TorchAttention`` is the plain version that they are compared with.

    rope_and_store   qkv → rotated queries; keys and values into their slots
    paged_decode     one query a request: split over the keys, so that a few long requests fill the GPU
    paged_prefill    any number of queries a request, chunks and decodes in one batch

vLLM: ``v1/attention/backends/triton_attn.py``.
"""

from __future__ import annotations

import torch

from stage1.attention import Rotate
from stage1.batch import ForwardBatch
from stage1.kv_cache import KVCache
from stage1.model.layers import Attention
from stage1.model.rope import apply_rope
from stage2.kernels.decode_attention import choose_splits, paged_decode
from stage2.kernels.prefill_attention import paged_prefill
from stage2.kernels.rope_store import rope_and_store

INTERPRETED_SMS = 4  # what the interpreter pretends to have


class TritonAttention:
    """``AttentionBackend`` in Triton. The rotation is fused into the store, so a replaced ``rotate`` is refused."""

    def __init__(self, kv_cache: KVCache, cos: torch.Tensor, sin: torch.Tensor, rotate: Rotate = apply_rope) -> None:
        if rotate is not apply_rope:
            raise ValueError("the Triton backend rotates inside a kernel: your own needs --attention-backend torch")
        self._kv_cache = kv_cache
        self._cos, self._sin = cos, sin  # [max_model_len, dim / 2] float32
        self._num_sms = INTERPRETED_SMS
        if cos.device.type == "cuda":
            self._num_sms = torch.cuda.get_device_properties(cos.device).multi_processor_count

    def plan(self, batch: ForwardBatch) -> None:
        """Nothing: the kernels read lengths and block tables on the device."""

    def attend(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """One layer's attention. ``qkv`` [T, (q + 2 kv heads) * dim] → [T, q heads * dim]."""
        heads, kv_heads, dim = layer.num_heads, layer.num_kv_heads, layer.head_dim
        keys, values = self._kv_cache.layers[layer.index]  # [num_blocks, block_size, kv heads, dim]
        q = torch.empty(qkv.shape[0], heads, dim, dtype=qkv.dtype, device=qkv.device)
        rope_and_store(
            qkv, q, keys, values, batch.slot_mapping, batch.positions, self._cos, self._sin,
            layer.q_norm, layer.k_norm, layer.eps, heads, kv_heads,
        )  # fmt: skip
        out = torch.empty_like(q)
        scale = dim**-0.5
        if batch.max_query_len == 1:
            splits = choose_splits(batch.num_reqs, kv_heads, self._num_sms)
            paged_decode(q, keys, values, batch.block_table, batch.seq_lens, out, num_splits=splits, scale=scale)
        else:
            paged_prefill(q, keys, values, batch.block_table, batch.query_start, batch.seq_lens, out, scale=scale)
        return out.flatten(1)

    def capture_buffers(self, max_reqs: int) -> None:
        """Nothing: the kernels' inputs are the batch's own tensors."""

    def refresh(self, batch: ForwardBatch) -> None:
        """Nothing is kept between steps."""
