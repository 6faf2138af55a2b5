"""Widens when it is too late."""

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    starts = (block_table * block_size).long()
    return starts[request, positions // block_size] + positions.remainder(block_size)
