"""How prefill attention is cut into programs.

Owns the table of tiles and the bound on their number. Does not know the kernel: ``prefill_attention`` launches it.

    chunk of 128 tokens, 2 query heads a KV head    256 rows    4 tiles of 64 rows, each for every KV head

A large tile reads the keys less often; a small one makes more programs where there are few queries.

vLLM: ``attention/ops/triton_unified_attention.py`` (``BLOCK_M``, ``BLOCK_Q``).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton


@dataclass(frozen=True, slots=True)
class PrefillTile:
    """How one program is cut: a power of two, at least 16, of rows (queries times heads of a group) and of keys."""

    rows: int
    keys: int
    num_warps: int
    num_stages: int


# (head size rounded up to a power of two, bytes of the dtype) → tile; fp32 works in full precision, so it gets little.
TILES = {
    (64, 2): PrefillTile(128, 64, 8, 5),
    (128, 2): PrefillTile(256, 64, 8, 5),
    (256, 2): PrefillTile(128, 32, 8, 2),
    (64, 4): PrefillTile(64, 32, 8, 2),
    (128, 4): PrefillTile(32, 16, 8, 2),
    (256, 4): PrefillTile(16, 16, 8, 2),
}
SMALL_TILE = PrefillTile(64, 64, 4, 3)  # so that a short chunk still makes a program for each multiprocessor
FEW_TOKENS = 1024
# Unless large tiles make as many: 1,024 tokens of 32 query heads do, and behind 12,000 keys small ones reached 37 % of
# the matmul rate.
ENOUGH_PROGRAMS = 120
OTHER_TILE = PrefillTile(16, 16, 4, 1)
# Where requests send this many rows or fewer on average, most of a big tile would be rows left over.
FEW_ROWS = 16


def choose_tile(
    num_tokens: int, num_reqs: int, group: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> PrefillTile:
    """The tile for a batch of ``num_tokens`` in ``num_reqs`` rows, ``group`` query heads a KV head.

    Reads static sizes alone (those of the tensors, padding included), so a captured graph keeps its choice.
    """
    tile = TILES.get((triton.next_power_of_2(head_dim), dtype.itemsize), OTHER_TILE)
    if num_tokens * group <= FEW_ROWS * num_reqs and dtype.itemsize == 2 and head_dim <= 128:
        return PrefillTile(max(16, triton.next_power_of_2(group)), 64, 4, 3)
    programs = num_tokens * group // tile.rows * kv_heads
    if num_tokens <= FEW_TOKENS and programs < ENOUGH_PROGRAMS and dtype.itemsize == 2 and head_dim <= 128:
        tile = SMALL_TILE
    return PrefillTile(max(tile.rows, triton.next_power_of_2(group)), tile.keys, tile.num_warps, tile.num_stages)


def bound_query_tiles(num_tokens: int, num_reqs: int, group: int, tile: PrefillTile) -> int:
    """The most tiles that ``num_tokens`` queries of at most ``num_reqs`` requests can make, in any division."""
    # A request of n >= 1 queries makes 1 + (n - 1) // queries tiles.
    reqs = min(num_reqs, num_tokens)
    return reqs + (num_tokens - reqs) // (tile.rows // group)
