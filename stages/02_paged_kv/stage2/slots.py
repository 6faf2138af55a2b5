"""Where a token's key and value lie: the slot mapping.

Owns the arithmetic from positions to slots. Does not know the cache's memory.

    block_size 4, block table of the request [7, 2, 9]
    position   0  1  2  3 |  4  5  6  7 |  8  9
    slot      28 29 30 31 |  8  9 10 11 | 36 37        block * 4 + position % 4

A slot of -1 is padding: nothing is stored for it.

vLLM: ``v1/worker/block_table.py`` (``compute_slot_mapping``).
"""

from __future__ import annotations

import torch


def slot_mapping(
    block_table: torch.Tensor, request: torch.Tensor, positions: torch.Tensor, block_size: int
) -> torch.Tensor:
    """Slots of a flattened batch, on the device of its arguments.

    Args:
        block_table: [R, B] integers, block ids of each request in the order of its tokens.
        request: [T] int64, which row of ``block_table`` each token belongs to.
        positions: [T] int64, each token's place in its request.
        block_size: tokens of a block.

    Returns:
        [T] int64, ``block * block_size + offset``.
    """
    block = block_table[request, positions // block_size].long()  # [T]
    return block * block_size + positions % block_size
