"""Where the row begins, and on from there."""

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    starts = block_table.to(torch.int64).select(1, 0).mul(block_size)
    return torch.stack([starts[r] + p for r, p in zip(request, positions, strict=True)])
