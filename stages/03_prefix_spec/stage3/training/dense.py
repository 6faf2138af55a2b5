"""Attention over whole sequences at once, without a KV cache: what training needs and serving does not.

Owns the rectangle of B sequences padded to S tokens, laid flat for the model: token s of sequence b is row b * S + s.

    a0 a1 a2 a3 | b0 b1 -- --      T = B * S = 8

Padding stands behind the tokens and a query looks only back, so no real token sees it; what a padded row computes is
read by nobody.

vLLM: none (it does not train).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel

from stage1.attention import BACKENDS
from stage1.batch import ForwardBatch
from stage1.model.layers import Attention
from stage1.model.ops import rms_norm
from stage1.model.rope import apply_rope


@dataclass(slots=True, eq=False)
class DensePlan:
    """What all layers share."""

    num_seqs: int  # B
    cos: torch.Tensor  # [T, dim / 2] float32
    sin: torch.Tensor  # [T, dim / 2] float32


class DenseAttention:
    """``AttentionBackend`` for rectangles of whole sequences; ``cos`` and ``sin`` are float32 [positions, dim / 2]."""

    def __init__(self, cos: torch.Tensor, sin: torch.Tensor) -> None:
        self._cos, self._sin = cos, sin

    def plan(self, batch: ForwardBatch) -> None:
        """Look up the angles of every token."""
        batch.attn = DensePlan(batch.num_reqs, self._cos[batch.positions], self._sin[batch.positions])

    def attend(self, layer: Attention, qkv: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Causal attention within each sequence. ``qkv`` [T, (q + 2 kv heads) * dim] → [T, q heads * dim]."""
        plan: DensePlan = batch.attn
        q, k, v = split_and_turn(layer, qkv, plan.cos, plan.sin)  # [T, heads, dim]
        group = layer.num_heads // layer.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        q, k, v = (x.unflatten(0, (plan.num_seqs, -1)).transpose(1, 2) for x in (q, k, v))  # [B, heads, S, dim]
        with sdpa_kernel(BACKENDS):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).flatten(0, 1).flatten(1)

    def capture_buffers(self, max_reqs: int) -> None:
        """Nothing is captured."""

    def refresh(self, batch: ForwardBatch) -> None:
        """Nothing is captured, so nothing is refreshed."""


def split_and_turn(
    layer: Attention, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries [T, heads, dim], keys and values [T, kv heads, dim]; q and k normalised and turned as the model wants."""
    heads, kv_heads = layer.num_heads, layer.num_kv_heads
    q, k, v = qkv.unflatten(-1, (-1, layer.head_dim)).split((heads, kv_heads, kv_heads), dim=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        q, k = rms_norm(q, layer.q_norm, layer.eps), rms_norm(k, layer.k_norm, layer.eps)
    return apply_rope(q, cos, sin), apply_rope(k, cos, sin), v


def rectangle(input_ids: torch.Tensor) -> ForwardBatch:
    """The batch of whole sequences: ``input_ids`` [B, S] int64, padded at the end with any token.

    Only what ``DenseAttention`` and ``ChainAttention`` read is filled in: there is no cache, so no blocks and slots.
    """
    num_seqs, length = input_ids.shape
    none = input_ids.new_zeros(0)
    positions = torch.arange(length, device=input_ids.device).repeat(num_seqs)  # [T]
    start = torch.arange(num_seqs + 1, device=input_ids.device) * length  # [B + 1]
    return ForwardBatch(
        rows=start[:-1],
        input_ids=input_ids.flatten(),
        positions=positions,
        query_start=start,
        seq_lens=start.diff(),
        block_table=none,
        slot_mapping=none,
        logits_rows=none,
        max_query_len=length,
        max_seq_len=length,
    )
