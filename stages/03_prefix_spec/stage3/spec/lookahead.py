"""Blocks for tokens that a drafter computes ahead of the engine.

Owns one rule: whoever gets a block gets room for so many tokens behind it too. A drafter with a KV cache of its own
(a draft model, EAGLE) runs behind the last known token before the scheduler has planned those positions, and it uses
the request's block table. Does not know drafters.

    block_size 4, lookahead 3, tokens [0, 6) are asked for: block 1 ends at 8, drafts from there reach to 11 → 3 blocks

Lookahead is a wish. Where blocks are short a request gets what it asked for and no more: nobody is refused for a
drafter's sake, and a drafter must store nothing behind the blocks that a request has. What was taken while blocks were
free is kept, for the request's own tokens reach it a few steps later; so a full cache may preempt somebody those few
steps earlier than without a drafter.

vLLM: ``v1/core/kv_cache_manager.py`` (``num_lookahead_tokens``).
"""

from __future__ import annotations

from stage1.interfaces import Hit, KVCacheManager
from stage1.request import Request


class LookaheadKV:
    """``manager`` with room for ``num_tokens`` more; a ``KVCacheManager``. A tracing wrapper goes around it."""

    def __init__(self, manager: KVCacheManager, num_tokens: int) -> None:
        self.num_blocks = manager.num_blocks
        self.block_size = manager.block_size
        self._manager = manager
        self._num_tokens = num_tokens

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return self._manager.usage

    def lookup(self, req: Request) -> Hit | None:
        """Passed on."""
        return self._manager.lookup(req)

    def adopt(self, req: Request, hit: Hit) -> None:
        """Passed on."""
        self._manager.adopt(req, hit)

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Room for tokens ``[0, upto + lookahead)``, and where there is enough for the drafts behind them.

        Until ``upto`` has passed the end of its block nobody asks again: the drafts are counted from there.
        """
        end_of_block = -(-(upto + lookahead) // self.block_size) * self.block_size
        wanted = max(min(end_of_block + self._num_tokens, req.max_total_tokens), upto + lookahead)
        block_ids = self._manager.allocate_slots(req, upto, wanted - upto)
        return self._manager.allocate_slots(req, upto, lookahead) if block_ids is None else block_ids

    def commit(self, req: Request) -> None:
        """Passed on."""
        self._manager.commit(req)

    def free(self, req: Request) -> None:
        """Passed on."""
        self._manager.free(req)
