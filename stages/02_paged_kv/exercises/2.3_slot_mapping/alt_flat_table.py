"""One index into the flattened table, as a kernel would compute it."""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """[R, B], [T], [T] → [T] int64."""
    column = torch.div(positions, block_size, rounding_mode="floor")  # [T]
    place = request * block_table.shape[1] + column
    block = block_table.reshape(-1).gather(0, place)
    return torch.add(positions - column * block_size, block.to(torch.int64), alpha=block_size)
