"""The product is computed in the integers of the block table.

Block ids fit into 32 bits; a block id times the block size may not, and the product wraps round to a negative number.
Widen first (`.long()`), multiply then. No cache of today has two thousand million tokens, but a kernel goes on to
multiply the slot by heads and head size, and that product passes the limit on a large GPU.
"""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """Multiplied as it comes."""
    return block_table[request, positions // block_size] * block_size + positions % block_size
