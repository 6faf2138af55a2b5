"""Medusa heads: each guesses one of the tokens ahead, from the target's hidden state alone.

Owns their parameters and arithmetic in training. Head k starts from h at the last known position p and guesses token
p + 2 + k; it does not know what the heads before it guessed.

    h ─ + silu(W h + b) ─ … L times ─ lm_head (the target's) ─ token p + 2 + k

With zeros everywhere, which is the start of the training, each head is the target's own projection of h.

vLLM: ``vllm/model_executor/models/medusa.py``; the paper is arXiv:2401.10774.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from stage3.training.batches import Batch
from stage3.training.chain_attention import shifted
from stage3.training.target import Target


class MedusaHeads(nn.Module):
    """``num_heads`` (K) heads of ``num_layers`` (L) residual layers; weights [L, K, H, H] and biases [L, K, H]."""

    method = "medusa"

    def __init__(self, hidden_size: int, num_heads: int, num_layers: int) -> None:
        super().__init__()
        self.num_steps = num_heads
        self.max_drafts: int | None = num_heads
        self.weight = nn.Parameter(torch.zeros(num_layers, num_heads, hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(num_layers, num_heads, hidden_size))

    @staticmethod
    def count_parameters(hidden_size: int, num_heads: int, num_layers: int) -> int:
        """How many parameters heads of these sizes have; nothing is made."""
        return num_layers * num_heads * (hidden_size + 1) * hidden_size

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, S, H] → [K, B, S, H]: each head's state, to be projected."""
        x = hidden.flatten(0, 1).expand(self.num_steps, -1, -1)  # [K, T, H]
        for weight, bias in zip(self.weight, self.bias, strict=True):
            x = x + F.silu(torch.bmm(x, weight.transpose(1, 2).to(x.dtype)) + bias[:, None].to(x.dtype))
        return x.unflatten(1, hidden.shape[:2])

    def states(self, target: Target, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Aligned states [K, B, S, H]: head k at p stands at t = p + 1 + k."""
        return torch.stack([shifted(state, 1 + k) for k, state in enumerate(self(hidden))])

    def draft(self, target: Target, hidden: torch.Tensor, batch: Batch, num_drafts: int) -> torch.Tensor:
        """Guesses [num_drafts, B, S], at most as many as there are heads."""
        return target.best_tokens(self(hidden)[:num_drafts])

    def tensors(self) -> dict[str, torch.Tensor]:
        """``blocks.weight`` [L, K, H, H] and ``blocks.bias`` [L, K, H]."""
        return {"blocks.weight": self.weight.detach(), "blocks.bias": self.bias.detach()}
