"""The layers of a dense decoder. Parameters start on the meta device: they have a shape and no memory yet.

Owns the order of operations inside a layer. Does not know ranks, caches or how attention is computed: head counts and
widths come as arguments, and the attention backend and the ops are passed in.

    hidden ─ norm ─ qkv_proj ─ attend ─ o_proj ─┐ add to residual ─ norm ─ gate_up_proj ─ silu·mul ─ down_proj ─ hidden
    residual ───────────────────────────────────┘ ────────────────────────────────────────────────────────── residual

The last addition of a layer is made by the next norm, which fuses the two.

vLLM: ``vllm/model_executor/models/llama.py``, ``vllm/model_executor/layers/``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from stage1.batch import ForwardBatch
from stage1.interfaces import AttentionBackend, Ops
from stage1.model.shape import ModelShape


def unallocated(*sizes: int) -> nn.Parameter:
    """A parameter without memory and without gradients, in float32 until it is allocated."""
    return nn.Parameter(torch.empty(sizes, device="meta"), requires_grad=False)


@dataclass(frozen=True)
class LocalSizes:
    """What of each layer is held here: everything on one GPU, a rank's share under tensor parallelism."""

    vocab_size: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int

    @classmethod
    def whole(cls, shape: ModelShape) -> LocalSizes:
        """All of ``shape``."""
        return cls(shape.vocab_size, shape.num_heads, shape.num_kv_heads, shape.intermediate_size)


class Embedding(nn.Module):
    """Token ids [T] → rows of ``weight`` [vocab, hidden]."""

    def __init__(self, vocab_size: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = unallocated(vocab_size, hidden_size)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """[T] → [T, hidden]."""
        return F.embedding(input_ids, self.weight)


class Linear(nn.Module):
    """A matrix product with ``weight`` [out, in] and, if asked for, ``bias`` [out]."""

    def __init__(self, in_size: int, out_size: int, bias: bool, ops: Ops) -> None:
        super().__init__()
        self.weight = unallocated(out_size, in_size)
        self.bias = unallocated(out_size) if bias else None
        self.ops = ops

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[T, in] → [T, out]."""
        return self.ops.linear(x, self.weight, self.bias)


class Norm(nn.Module):
    """Adds to the residual stream, then RMS norm with ``weight`` [hidden]."""

    def __init__(self, hidden_size: int, eps: float, ops: Ops) -> None:
        super().__init__()
        self.weight = unallocated(hidden_size)
        self.eps = eps
        self.ops = ops

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Both [T, hidden]; returns (norm of their sum, their sum)."""
        return self.ops.add_rms_norm(hidden, residual, self.weight, self.eps)


class Attention(nn.Module):
    """Projections around an attention backend, which reads this layer's counts and head norms from it.

    The rows of ``qkv_proj`` are [q | k | v], heads behind each other, so that one product makes all three.
    """

    def __init__(
        self,
        *,
        index: int,  # of the layer, in the whole model
        hidden_size: int,
        num_heads: int,  # local, as is the next
        num_kv_heads: int,
        head_dim: int,
        qkv_bias: bool,
        o_bias: bool,
        qk_norm: bool,
        eps: float,
        ops: Ops,
    ) -> None:
        super().__init__()
        self.index = index
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads
        self.head_dim = head_dim
        self.eps = eps
        self.qkv_proj = Linear(hidden_size, (num_heads + 2 * num_kv_heads) * head_dim, qkv_bias, ops)
        self.o_proj = Linear(num_heads * head_dim, hidden_size, o_bias, ops)
        self.q_norm = unallocated(head_dim) if qk_norm else None
        self.k_norm = unallocated(head_dim) if qk_norm else None

    def forward(self, hidden: torch.Tensor, batch: ForwardBatch, attention: AttentionBackend) -> torch.Tensor:
        """[T, hidden] → [T, hidden]; stores this step's keys and values on the way."""
        qkv = self.qkv_proj(hidden)  # [T, (q + 2 kv heads) * dim]
        mixed = attention.attend(self, qkv, batch)  # [T, q heads * dim]
        out: torch.Tensor = self.o_proj(mixed)
        return out


class MLP(nn.Module):
    """``down(silu(gate(x)) * up(x))``; the rows of ``gate_up_proj`` are [gate | up]."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool, ops: Ops) -> None:
        super().__init__()
        self.gate_up_proj = Linear(hidden_size, 2 * intermediate_size, bias, ops)
        self.down_proj = Linear(intermediate_size, hidden_size, bias, ops)
        self.ops = ops

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, hidden] → [T, hidden]."""
        gate_up = self.gate_up_proj(hidden)  # [T, 2 * inner]
        out: torch.Tensor = self.down_proj(self.ops.activation(gate_up))
        return out


class DecoderLayer(nn.Module):
    """Attention and MLP, each behind a norm of the residual stream."""

    def __init__(self, index: int, shape: ModelShape, local: LocalSizes, ops: Ops) -> None:
        super().__init__()
        self.index = index
        self.input_layernorm = Norm(shape.hidden_size, shape.rms_eps, ops)
        self.self_attn = Attention(
            index=index,
            hidden_size=shape.hidden_size,
            num_heads=local.num_heads,
            num_kv_heads=local.num_kv_heads,
            head_dim=shape.head_dim,
            qkv_bias=shape.qkv_bias,
            o_bias=shape.o_bias,
            qk_norm=shape.qk_norm,
            eps=shape.rms_eps,
            ops=ops,
        )
        self.post_attention_layernorm = Norm(shape.hidden_size, shape.rms_eps, ops)
        self.mlp = MLP(shape.hidden_size, local.intermediate_size, shape.mlp_bias, ops)

    def forward(
        self, hidden: torch.Tensor, residual: torch.Tensor | None, batch: ForwardBatch, attention: AttentionBackend
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the previous layer computed and the stream it is still to be added to; the same two come out."""
        hidden, residual = self.input_layernorm(hidden, residual)
        hidden = self.self_attn(hidden, batch, attention)
        hidden, residual = self.post_attention_layernorm(hidden, residual)
        return self.mlp(hidden), residual
