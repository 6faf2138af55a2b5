"""The offset is counted from the beginning of the batch.

A token's place in the flattened batch says which token of the *step* it is. Where it lies in its block depends on its
place in its own request, `positions`: for a token that is decoded the two have nothing to do with each other.
"""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """The right block, the wrong offset."""
    block = block_table[request, positions // block_size].long()
    return block * block_size + torch.arange(len(positions), device=positions.device) % block_size
