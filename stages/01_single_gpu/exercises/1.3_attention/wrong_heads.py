"""Query heads are dealt round the KV heads, like cards.

Head h reads KV head ``h // group``, so neighbours share: 0 0 0 1 1 1 for six heads on two. With ``h % kv`` (which is
what ``repeat`` makes) it is 0 1 0 1 0 1. Checkpoints are trained with the first; ``repeat_interleave`` gives it.
"""

from __future__ import annotations

import math

import torch

from stage1.attention import TorchAttention as Reference


class TorchAttention(Reference):
    """repeat where repeat_interleave belongs."""

    @staticmethod
    def grouped(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Everything else is right."""
        group = q.shape[2] // k.shape[1]
        k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
        scores = q.transpose(1, 2) @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        return (torch.softmax(scores + mask[:, None], dim=-1) @ v).transpose(1, 2).flatten(2)
