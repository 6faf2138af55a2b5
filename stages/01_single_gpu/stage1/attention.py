"""Paged attention in plain torch: the reference that every faster backend is compared with.

Owns what happens between the qkv projection and the output projection. Reads keys and values through the block
table, so it is right for any block size, chunking and batch; it knows nothing of requests or scheduling.

The ragged batch is padded to [R, max_query_len] queries over [R, max_seq_len] keys; a mask decides who sees what:

    key position   0 1 2 3 4 5
    query at 3     x x x x . .      visible: key position <= query position
    query at 4     x x x x x .

vLLM: ``v1/attention/backends/`` (one file a backend), ``attention/layer.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from stage1.batch import ForwardBatch
from stage1.kv_cache import KVCache
from stage1.model.layers import Attention
from stage1.model.ops import rms_norm
from stage1.model.rope import apply_rope

# Padded queries of one call to the attention function: bounds the mask at QUERY_SLICE * max_seq_len a request.
QUERY_SLICE = 256

Rotate = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # x, cos, sin → x turned

# Not cuDNN: it compiles a plan for each new shape, and here the shape changes with every step (80 ms each on an H200).
BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(slots=True, eq=False)
class TorchPlan:
    """What all layers of a step share."""

    cos: torch.Tensor  # [T, dim / 2] float32
    sin: torch.Tensor  # [T, dim / 2] float32
    stored: torch.Tensor | slice  # of the T tokens those that have a slot: all, but for a drafter's last ones
    write_slots: torch.Tensor  # their slots
    read_slots: torch.Tensor  # [R * S] slots of every request's keys, S = max_seq_len
    token_of_query: torch.Tensor  # [R, Q] index into T of each padded query, Q = max_query_len
    query_of_token: torch.Tensor  # [T] index into R * Q of each token
    masks: list[torch.Tensor]  # [R, q, S], 0 or -inf in the model's dtype, for each slice of q <= QUERY_SLICE queries


class TorchAttention:
    """``AttentionBackend`` in torch operations alone, on any device and in any dtype."""

    def __init__(self, kv_cache: KVCache, cos: torch.Tensor, sin: torch.Tensor, rotate: Rotate = apply_rope) -> None:
        self.kv_cache = kv_cache
        self._rotate = rotate
        self._dtype = kv_cache.layers[0].dtype
        self._cos, self._sin = cos, sin  # [max_model_len, dim / 2] float32

    def plan(self, batch: ForwardBatch) -> None:
        """Work out once a step which slots are read and which keys each query sees."""
        block_size, device = self.kv_cache.block_size, batch.input_ids.device
        num_queries = batch.query_start.diff()  # [R]
        # A row past the end of a request reads its last real key instead of a slot that was never written: the mask
        # hides the score, but 0 * not-a-number in the weighted sum would still be not-a-number.
        key_pos = torch.arange(batch.max_seq_len, device=device)  # [S]
        read_pos = torch.minimum(key_pos, batch.seq_lens[:, None] - 1)  # [R, S]
        blocks = batch.block_table.gather(1, read_pos // block_size)  # [R, S]
        query = torch.arange(batch.max_query_len, device=device)  # [Q]
        token_of_query = batch.query_start[:-1, None] + torch.minimum(query, num_queries[:, None] - 1)  # [R, Q]
        request_of_token = torch.repeat_interleave(num_queries, output_size=batch.num_tokens)  # [T]
        offset = torch.arange(batch.num_tokens, device=device) - batch.query_start[request_of_token]  # [T]
        query_pos = batch.positions[token_of_query]  # [R, Q]
        stored = (batch.slot_mapping >= 0).nonzero()[:, 0] if batch.has_gaps else slice(None)
        batch.attn = TorchPlan(
            cos=self._cos[batch.positions],
            sin=self._sin[batch.positions],
            stored=stored,
            write_slots=batch.slot_mapping[stored],
            read_slots=(blocks * block_size + read_pos % block_size).flatten(),
            token_of_query=token_of_query,
            query_of_token=request_of_token * batch.max_query_len + offset,
            masks=[self._mask(pos, key_pos) for pos in query_pos.split(QUERY_SLICE, dim=1)],
        )

    def store(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Keys and values into their slots; returns the rotated queries [T, heads, dim]."""
        plan: TorchPlan = batch.attn
        heads, kv_heads, dim = layer.num_heads, layer.num_kv_heads, layer.head_dim
        q, k, v = qkv.unflatten(-1, (-1, dim)).split((heads, kv_heads, kv_heads), dim=1)  # [T, heads, dim]
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = rms_norm(q, layer.q_norm, layer.eps), rms_norm(k, layer.k_norm, layer.eps)
        q, k = self._rotate(q, plan.cos, plan.sin), self._rotate(k, plan.cos, plan.sin)

        keys, values = self.kv_cache.slots(layer.index)
        keys.index_copy_(0, plan.write_slots, k[plan.stored])
        values.index_copy_(0, plan.write_slots, v[plan.stored])
        return q

    def attend(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """One layer's attention. ``qkv`` [T, (q + 2 kv heads) * dim] → [T, q heads * dim]."""
        plan: TorchPlan = batch.attn
        q = self.store(layer, qkv, batch)
        keys, values = self.kv_cache.slots(layer.index)
        num_reqs = batch.num_reqs
        read_k = keys.index_select(0, plan.read_slots).unflatten(0, (num_reqs, -1)).transpose(1, 2)  # [R, kv, S, dim]
        read_v = values.index_select(0, plan.read_slots).unflatten(0, (num_reqs, -1)).transpose(1, 2)

        out = [
            self.grouped(q[tokens], read_k, read_v, mask)
            for tokens, mask in zip(plan.token_of_query.split(QUERY_SLICE, dim=1), plan.masks, strict=True)
        ]
        padded = torch.cat(out, dim=1).flatten(0, 1)  # [R * Q, heads * dim]
        return padded.index_select(0, plan.query_of_token)

    def _mask(self, query_pos: torch.Tensor, key_pos: torch.Tensor) -> torch.Tensor:
        """What is added to the scores: [R, q] and [S] → [R, q, S]."""
        hidden = key_pos > query_pos[..., None]  # [R, q, S]
        return torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device).masked_fill_(hidden, -math.inf)

    @staticmethod
    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Grouped-query attention: ``q`` [R, Q, heads, dim], ``k``/``v`` [R, kv, S, dim] → [R, Q, heads * dim].

        The query heads that share a KV head become further rows of one matrix, so keys are not repeated.
        """
        num_queries, kv_heads = q.shape[1], k.shape[1]
        group = q.shape[2] // kv_heads
        rows = q.unflatten(2, (kv_heads, group)).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [R, kv, group * Q, dim]
        repeated = mask[:, None].expand(-1, group, -1, -1).flatten(1, 2)  # [R, group * Q, S], a view where Q = 1
        with sdpa_kernel(BACKENDS):
            out = F.scaled_dot_product_attention(rows, k, v, attn_mask=repeated[:, None])
        return out.unflatten(2, (group, num_queries)).permute(0, 3, 1, 2, 4).flatten(2)

    def capture_buffers(self, max_reqs: int) -> None:
        """Nothing is captured: the padded shapes change with every step."""

    def refresh(self, batch: ForwardBatch) -> None:
        """Nothing is captured, so nothing is refreshed."""
