"""The paged KV manager: a request has as many blocks as its tokens fill.

Owns which request has which blocks, in the order of its tokens: its block table. Does not know the memory.

    block_size 4, 10 tokens     blocks [7, 2, 9]      tokens [0, 4) in 7, [4, 8) in 2, [8, 10) in 9, room for two more

vLLM: ``v1/core/kv_cache_manager.py``, ``v1/core/single_type_kv_cache_manager.py``.
"""

from __future__ import annotations

from stage1.interfaces import Hit
from stage1.request import Request
from stage2.block_pool import BlockPool

NO_HIT = Hit()


class PagedKVManager:
    """``KVCacheManager`` over a pool of blocks of ``block_size`` tokens."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.num_blocks = pool.num_blocks
        self.block_size = block_size
        self._pool = pool
        self._blocks: dict[str, list[int]] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return 1.0 - self._pool.num_free / self.num_blocks

    def lookup(self, req: Request) -> Hit:
        """Nothing is reused between requests here."""
        return NO_HIT

    def adopt(self, req: Request, hit: Hit) -> None:
        """A hit is always empty here."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Further blocks for tokens ``[0, upto + lookahead)``; ``None`` and nothing is taken if too few are free."""
        owned = self._blocks.get(req.req_id, [])
        missing = -(-(upto + lookahead) // self.block_size) - len(owned)
        if missing <= 0:
            return []
        if missing > self._pool.num_free:
            return None
        new = self._pool.take(missing)
        self._blocks[req.req_id] = owned + new
        return new

    def commit(self, req: Request) -> None:
        """Nothing is remembered of a block's content."""

    def free(self, req: Request) -> None:
        """Give every block back, the last one first: of a chain that may be reused, the head is worth most."""
        for block in reversed(self._blocks.pop(req.req_id, [])):
            self._pool.give_back(block)
