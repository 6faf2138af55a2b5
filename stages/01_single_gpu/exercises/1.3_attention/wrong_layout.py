"""The result is reshaped where it should be transposed.

The product is [R, heads, Q, dim], and the heads of one query belong behind each other: exchange heads and queries
(``transpose(1, 2)``) before you flatten. A plain ``reshape`` gives the right shape and hands a query the heads of
others.
"""

from __future__ import annotations

import math

import torch

from stage1.attention import TorchAttention as Reference


class TorchAttention(Reference):
    """The right shape, the wrong rows."""

    @staticmethod
    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Everything else is right."""
        group = q.shape[2] // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q.transpose(1, 2) @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        out = torch.softmax(scores + mask[:, None], dim=-1) @ v  # [R, heads, Q, dim]
        return out.reshape(q.shape[0], q.shape[1], -1)
