"""One giant block a request: the KV manager of static batching.

Owns which request has which block. Does not know the memory behind it. ``block_size`` is ``max_model_len``, so a
request fits in its block whatever it becomes — and holds all of it from the first token to the last: the waste that
paging removes.

vLLM: ``v1/core/kv_cache_manager.py``.
"""

from __future__ import annotations

from stage1.interfaces import Hit
from stage1.request import Request

NO_HIT = Hit()


class OneBlockKVManager:
    """``KVCacheManager`` with ``num_blocks`` blocks of ``block_size`` tokens, one a request."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(reversed(range(num_blocks)))  # the last one is handed out first
        self._owned: dict[str, int] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return len(self._owned) / self.num_blocks

    def lookup(self, req: Request) -> Hit:
        """Nothing is shared between requests here."""
        return NO_HIT

    def adopt(self, req: Request, hit: Hit) -> None:
        """A hit is always empty here."""

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """The request's block on its first call, nothing new afterwards, ``None`` while all blocks are taken.

        Raises:
            ValueError: more than ``block_size`` tokens are asked for.
        """
        if upto + lookahead > self.block_size:
            raise ValueError(
                f"{req.req_id} needs room for {upto + lookahead:,} tokens; a block has {self.block_size:,}"
            )
        if req.req_id in self._owned:
            return []
        if not self._free:
            return None
        self._owned[req.req_id] = block = self._free.pop()
        return [block]

    def commit(self, req: Request) -> None:
        """Nothing is remembered of a block's content."""

    def free(self, req: Request) -> None:
        """Take the block back."""
        block = self._owned.pop(req.req_id, None)
        if block is not None:
            self._free.append(block)
