"""The number of a block is taken for its first slot.

Block b begins at slot `b * block_size`: blocks are counted in blocks, slots in tokens. Without the factor the tokens
of two neighbouring blocks are written over each other.
"""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """Block plus offset."""
    return block_table[request, positions // block_size].long() + positions % block_size
