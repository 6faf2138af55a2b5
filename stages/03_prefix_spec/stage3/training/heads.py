"""What every kind of draft head offers to the trainer and to the evaluation.

Owns the socket. Heads are compared at the token that they predict, whatever they are made of:

    aligned states [J, B, S, hidden]: entry (j, b, t) predicts token t + 1, as the target's own state at t does;
    it belongs to the chain that starts behind position t - 1 - j

vLLM: none (it does not train).
"""

from __future__ import annotations

from typing import Protocol

import torch

from stage3.training.batches import Batch
from stage3.training.target import Target


class DraftHeads(Protocol):
    """A trainable module; its parameters are float32."""

    method: str  # the name in files
    num_steps: int  # J, tokens that are trained ahead
    max_drafts: int | None  # tokens that they can guess ahead; None = any number

    def states(self, target: Target, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """``hidden`` [B, S, hidden], the target's → aligned states [J, B, S, hidden], with gradients."""

    def draft(self, target: Target, hidden: torch.Tensor, batch: Batch, num_drafts: int) -> torch.Tensor:
        """What greedy drafting would guess behind each position: [num_drafts, B, S] int64.

        Entry (d, b, p) is the guess of token p + 2 + d of the chain that starts behind p, where the target itself
        gives token p + 1. Entries whose chain leaves the sequence mean nothing. ``num_drafts`` is at most
        ``max_drafts``.
        """

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors of the file, by name."""
