"""Paged attention with Triton kernels: two or three launches a layer, nothing padded, nothing copied.

Owns the order of the launches and the choice between them. Does not know requests; the kernels are in ``kernels/``, and
``stage1.attention.TorchAttention`` is the plain version that they are compared with.

    rope_and_store   qkv → rotated queries; keys and values into their slots
    paged_decode     one query a request: split over the keys, so that a few long requests fill the GPU
    paged_verify     a few queries a request, split like that: where nobody has more than ``MAX_QUERY_LEN``
    paged_prefill    any number of queries a request: chunks of prompts, short ones behind long contexts split as well

A mixed batch takes the second and the last, each for its own requests. Who has few tokens and who has more is read on
the device, so that the launches of a captured graph fit any division.

vLLM: ``v1/attention/backends/triton_attn.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stage1.attention import Rotate
from stage1.batch import ForwardBatch
from stage1.kv_cache import KVCache
from stage1.model.layers import Attention
from stage1.model.rope import apply_rope
from stage2.inputs import MOST_CUT, StepBatch
from stage2.kernels.decode_attention import MAX_QUERY_LEN, OWN, DecodeKernels, paged_decode, paged_verify
from stage2.kernels.decode_splits import Splits, choose_splits, worth_cutting
from stage2.kernels.prefill_attention import paged_prefill
from stage2.kernels.prefill_splits import choose_key_splits
from stage2.kernels.prefill_tiles import bound_query_tiles, choose_tile
from stage2.kernels.rope_store import rope_and_store

BLOCK_SIZES = (16, 256)
INTERPRETED_SMS = 4  # what the interpreter pretends to have


class TritonAttention:
    """``AttentionBackend`` in Triton. The rotation is fused into the store, so a replaced ``rotate`` is refused."""

    def __init__(
        self,
        kv_cache: KVCache,
        cos: torch.Tensor,
        sin: torch.Tensor,
        rotate: Rotate = apply_rope,
        kernels: DecodeKernels = OWN,
    ) -> None:
        if rotate is not apply_rope:
            raise ValueError("the Triton backend rotates inside a kernel: your own needs --attention-backend torch")
        low, high = BLOCK_SIZES
        if not low <= kv_cache.block_size <= high:
            raise ValueError(
                f"block_size is {kv_cache.block_size}; the Triton kernels take {low} to {high}: choose one of those, "
                "or --attention-backend torch"
            )
        self.kv_cache = kv_cache
        self._kernels = kernels
        self._cos, self._sin = cos, sin  # [max_model_len, dim / 2] float32
        self._num_sms = INTERPRETED_SMS
        if cos.device.type == "cuda":
            self._num_sms = torch.cuda.get_device_properties(cos.device).multi_processor_count

    def plan(self, batch: ForwardBatch) -> None:
        """Nothing: the kernels read lengths and block tables on the device."""

    def store(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Keys and values into their slots; returns the rotated queries [T, heads, dim], of padding anything."""
        heads, kv_heads, dim = layer.num_heads, layer.num_kv_heads, layer.head_dim
        keys, values = self.kv_cache.layers[layer.index]  # [num_blocks, block_size, kv heads, dim]
        q = torch.empty(qkv.shape[0], heads, dim, dtype=qkv.dtype, device=qkv.device)
        rope_and_store(
            qkv, q, keys, values, batch.slot_mapping, batch.positions, self._cos, self._sin,
            layer.q_norm, layer.k_norm, layer.eps, heads, kv_heads,
        )  # fmt: skip
        return q

    def attend(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """One layer's attention. ``qkv`` [T, (q + 2 kv heads) * dim] → [T, q heads * dim]."""
        assert isinstance(batch, StepBatch)
        kv_heads, dim = layer.num_kv_heads, layer.head_dim
        keys, values = self.kv_cache.layers[layer.index]
        q = self.store(layer, qkv, batch)
        out = torch.empty_like(q)
        splits = Splits(1)
        if batch.num_tokens <= MOST_CUT:
            few = batch.num_reqs if batch.max_query_len <= MAX_QUERY_LEN else max(batch.num_few, 1)
            splits = choose_splits(few, kv_heads, self._num_sms, dim, batch.cut)
        pages = (q, keys, values, batch.block_table)
        common: dict[str, Any] = {"scale": dim**-0.5, "kernels": self._kernels}
        common |= {"num_splits": splits.number, "min_tiles": splits.min_tiles}
        if batch.max_query_len == 1:
            paged_decode(*pages, batch.seq_lens, out, **common)
            return out.flatten(1)
        if batch.max_query_len <= MAX_QUERY_LEN:
            paged_verify(
                *pages, batch.seq_lens, batch.query_start, out, max_query_len=batch.max_query_len, **common
            )  # fmt: skip
            return out.flatten(1)
        if batch.num_few:
            paged_verify(*pages, batch.few_lens, batch.query_start, out, max_query_len=batch.max_few, **common)
        self._attend_chunks(q, keys, values, out, batch)
        return out.flatten(1)

    def _attend_chunks(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        out: torch.Tensor,
        batch: StepBatch,
    ) -> None:
        """Requests with more than a few tokens, behind the others: their rows of ``out`` are overwritten."""
        heads, dim = q.shape[1:]
        kv_heads = keys.shape[2]
        group = heads // kv_heads
        max_len = batch.block_table.shape[1] * self.kv_cache.block_size
        tile = choose_tile(batch.num_tokens, batch.num_chunks, group, kv_heads, dim, q.dtype)
        paged_prefill(
            *(q, keys, values, batch.block_table, batch.query_start, batch.seq_lens, out),
            scale=dim**-0.5,
            max_query_tiles=bound_query_tiles(batch.num_tokens, batch.num_chunks, group, tile),
            min_queries=batch.max_few + 1,
            tile=tile,
            splits=choose_key_splits(batch.num_tokens, kv_heads, self._num_sms, max_len, tile.keys),
        )

    def worth_cutting(self, seq_lens: npt.NDArray[np.int32]) -> bool:
        """Whether attention to requests of so many keys [R] is faster with splits.

        A graph cannot choose: it is worth two.
        """
        kv_heads, dim = self.kv_cache.layers[0][0].shape[2:]
        return worth_cutting(int(seq_lens.sum()), int(seq_lens.max()), kv_heads, self._num_sms, dim)

    def capture_buffers(self, max_reqs: int) -> tuple[()]:
        """Everything can be captured and nothing need be kept: the kernels read the batch's own tensors."""
        return ()

    def refresh(self, batch: ForwardBatch) -> None:
        """Nothing is kept between steps."""
