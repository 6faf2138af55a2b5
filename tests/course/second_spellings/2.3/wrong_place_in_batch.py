"""Numbers the tokens anew."""

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    slots = []
    for token, (row, position) in enumerate(zip(request.tolist(), positions.tolist(), strict=True)):
        slots.append(int(block_table[row, position // block_size]) * block_size + token % block_size)
    return torch.tensor(slots)
