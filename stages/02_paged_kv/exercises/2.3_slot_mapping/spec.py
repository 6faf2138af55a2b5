"""One token at a time, in Python's own integers."""

from __future__ import annotations

import torch


def slots_of(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """[R, B] block ids, [T] rows and [T] positions → [T] int64 slots."""
    table = block_table.tolist()
    slots = []
    for row, position in zip(request.tolist(), positions.tolist(), strict=True):
        block, offset = divmod(position, block_size)
        slots.append(table[row][block] * block_size + offset)
    return torch.tensor(slots, dtype=torch.int64)
