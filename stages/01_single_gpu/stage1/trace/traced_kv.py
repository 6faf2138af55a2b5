"""A KV cache manager that tells the trace who takes and frees which blocks.

Owns only the list of what each request holds. Does not know how blocks are chosen or shared: any manager can be
wrapped, and the wrapper offers the same socket. Where several wrappers lie around each other, this is the outermost.

vLLM: ``v1/core/kv_cache_manager.py`` with ``enable_kv_cache_events``.
"""

from __future__ import annotations

from stage1.interfaces import Hit, KVCacheManager
from stage1.request import Request
from stage1.trace.events import BlocksFreed, BlocksShared, BlocksTaken
from stage1.trace.tracer import Tracer


class TracedKV:
    """``manager``, with an event for every block that changes hands. A ``KVCacheManager``."""

    def __init__(self, manager: KVCacheManager, tracer: Tracer) -> None:
        self.num_blocks = manager.num_blocks
        self.block_size = manager.block_size
        self._manager = manager
        self._tracer = tracer
        self._held: dict[str, list[int]] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0..1."""
        return self._manager.usage

    def lookup(self, req: Request) -> Hit | None:
        """What the wrapped manager has of ``req``; takes nothing, so there is no event."""
        return self._manager.lookup(req)

    def adopt(self, req: Request, hit: Hit) -> None:
        """Share the blocks of ``hit``; an empty hit leaves no event."""
        self._manager.adopt(req, hit)
        if hit.block_ids or hit.num_tokens:
            self._held.setdefault(req.req_id, []).extend(hit.block_ids)
            self._tracer.emit(BlocksShared(self._tracer.now(), req.req_id, list(hit.block_ids), hit.num_tokens))

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Make room; an event only where blocks were added."""
        new_ids = self._manager.allocate_slots(req, upto, lookahead)
        if new_ids:
            self._held.setdefault(req.req_id, []).extend(new_ids)
            self._tracer.emit(BlocksTaken(self._tracer.now(), req.req_id, list(new_ids)))
        return new_ids

    def commit(self, req: Request) -> None:
        """Passed on."""
        self._manager.commit(req)

    def free(self, req: Request) -> None:
        """Free everything that ``req`` holds; without a block there is no event."""
        self._manager.free(req)
        held = self._held.pop(req.req_id, None)
        if held is not None:
            self._tracer.emit(BlocksFreed(self._tracer.now(), req.req_id, held))
