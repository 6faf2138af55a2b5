"""First the slots of all tokens that the blocks could hold, then those that are asked for."""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """[R, B], [T], [T] → [T] int64."""
    first = block_table.to(torch.int64) * block_size  # [R, B]
    every = first[:, :, None] + torch.arange(block_size, device=first.device)  # [R, B, block_size]
    return every.flatten(1)[request, positions]
