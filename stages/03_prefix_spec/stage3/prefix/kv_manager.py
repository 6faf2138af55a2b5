"""The KV manager with a prefix cache: what one request computed, the next one with the same beginning reuses.

Owns each request's block table and the names of its full blocks, and counts what was found. Does not know the memory,
nor how a name is made or where a block stands in the free list.

Only full blocks are shared, so nobody writes into a block that has two owners. A hit ends before the last known token:
that token must be computed, for the next one is sampled from what the model says behind it.

    block_size 4, 12 tokens, all computed before     hit [7, 2], 8 tokens      [8, 12) are computed again

vLLM: ``v1/core/kv_cache_manager.py``, ``v1/core/kv_cache_coordinator.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from stage1.interfaces import Hit
from stage1.request import Request, Status
from stage2.block_pool import BlockPool
from stage3.prefix.block_hash import BlockKey, chain_hasher, chain_start, hash_block
from stage3.prefix.cached_pool import CachedBlockPool

NO_HIT = Hit()


def longest_hit(keys: Iterable[BlockKey], find: Callable[[BlockKey], int | None]) -> list[int]:
    """The blocks that hold ``keys``, up to the first that nobody holds: what comes after it is of no use alone."""
    blocks = []
    for key in keys:
        block = find(key)
        if block is None:
            break
        blocks.append(block)
    return blocks


@dataclass(slots=True)
class _Chain:
    """What the manager keeps of a request; ``keys`` and ``num_cached_tokens`` outlive a preemption."""

    keys: list[BlockKey]  # where it starts, then the name of each full block: the last one is the parent of the next
    blocks: list[int] = field(default_factory=list)  # its block table
    num_adopted: int = 0  # of these blocks, computed by others: [0, num_adopted)
    num_published: int = 0  # blocks that can be found, or need not be published: [0, num_published)
    num_cached_tokens: int | None = None  # the hit of its first admission


class PrefixKVManager:
    """``KVCacheManager`` that finds computed blocks again.

    Args:
        pool: who is free.
        block_size: tokens of a block.
        cached_pool: makes of ``pool`` one that remembers.
        hash_block: the name of a block from its parent's and its tokens.
        longest_hit: the blocks to reuse.
        blocks_to_recompute: at the end of every hit. 1 where something beside the cache is filled by the same blocks
            and its last entry depends on the token behind the block, as an EAGLE drafter's does.
    """

    def __init__(
        self,
        pool: BlockPool,
        block_size: int,
        cached_pool: Callable[[BlockPool], CachedBlockPool] = CachedBlockPool,
        hash_block: Callable[[BlockKey, Sequence[int]], BlockKey] = hash_block,
        longest_hit: Callable[[Iterable[BlockKey], Callable[[BlockKey], int | None]], list[int]] = longest_hit,
        blocks_to_recompute: int = 0,
    ) -> None:
        self.num_blocks = pool.num_blocks
        self.block_size = block_size
        self.num_queried_tokens = 0  # of requests that came in for the first time and could have used a hit
        self.num_hit_tokens = 0  # of these, found
        self._pool = cached_pool(pool)
        self._extend = chain_hasher(block_size, hash_block)
        self._longest_hit = longest_hit
        self._blocks_to_recompute = blocks_to_recompute
        self._no_keys = chain_start({})
        self._chains: dict[str, _Chain] = {}

    @property
    def usage(self) -> float:
        """Share of the blocks that a request holds, 0..1; what is only remembered is free."""
        return 1.0 - self._pool.num_free / self.num_blocks

    def set_extra_keys(self, req_id: str, extra_keys: Mapping[str, str]) -> None:
        """What else must be equal for ``req_id`` to share blocks: kind → value. Before its first ``lookup``.

        Raises:
            ValueError: names were given to its blocks already.
        """
        if req_id in self._chains:
            raise ValueError(f"request {req_id!r} has been looked up: its extra keys come before that, not after")
        self._chains[req_id] = _Chain([chain_start(extra_keys)])

    def num_cached_tokens(self, req_id: str) -> int | None:
        """Tokens that ``req_id`` did not have to compute when it first came in; ``None`` until then and once it ended.

        What it finds again after a preemption is its own work and does not count.
        """
        chain = self._chains.get(req_id)
        return None if chain is None else chain.num_cached_tokens

    def reset(self) -> bool:
        """Forget all content; ``False`` and nothing is forgotten while a request holds a block."""
        return self._pool.reset()

    # --- KVCacheManager -------------------------------------------------------------------------------

    def lookup(self, req: Request) -> Hit:
        """The longest computed beginning of ``req``, in full blocks and without its last token.

        Log-probabilities of a prompt come from computing it, so whoever wants them gets no hit.
        """
        chain = self._chain(req)
        self._name(req, chain, req.num_tokens // self.block_size)
        if not _may_hit(req):
            return NO_HIT
        most = (req.num_tokens - 1) // self.block_size
        blocks = self._longest_hit(islice(chain.keys, 1, most + 1), self._pool.find)
        blocks = blocks[: max(len(blocks) - self._blocks_to_recompute, 0)]
        return Hit(tuple(blocks), len(blocks) * self.block_size)

    def adopt(self, req: Request, hit: Hit) -> None:
        """Make ``req`` one more owner of the blocks of ``hit``, so that nobody is given them."""
        for block in hit.block_ids:
            self._pool.share(block)
        chain = self._chain(req)
        chain.blocks = list(hit.block_ids)
        chain.num_adopted = chain.num_published = len(hit.block_ids)

    def allocate_slots(self, req: Request, upto: int, lookahead: int = 0) -> list[int] | None:
        """Further blocks for tokens ``[0, upto + lookahead)``; ``None`` and nothing is taken if too few are free."""
        chain = self._chain(req)
        missing = -(-(upto + lookahead) // self.block_size) - len(chain.blocks)
        if missing > self._pool.num_free:
            return None
        if chain.num_cached_tokens is None:
            self._count(req, chain)
        new = self._pool.take(missing) if missing > 0 else []
        chain.blocks += new
        return new

    def commit(self, req: Request) -> None:
        """Publish the blocks that are full of computed tokens.

        The last known token is computed by a step that has not returned, if at all, and the ids of tokens in flight
        behind it are not known.
        """
        chain = self._chains[req.req_id]
        full = min(req.num_computed_tokens, req.num_tokens - 1) // self.block_size
        if full <= chain.num_published:
            return
        self._name(req, chain, full)
        for place in range(chain.num_published, full):
            self._pool.publish(chain.blocks[place], chain.keys[place + 1])
        chain.num_published = full

    def free(self, req: Request) -> None:
        """Give every block back, the last one first: of a chain that may be reused, the head is worth most.

        What a failed request has computed is forgotten: nobody knows how far its last step came, or whether its numbers
        are any good.
        """
        chain = self._chains.get(req.req_id)
        if chain is None:
            return
        if req.status is Status.FAILED:
            for block in chain.blocks[chain.num_adopted :]:
                self._pool.forget(block)
        for block in reversed(chain.blocks):
            self._pool.give_back(block)
        chain.blocks = []
        chain.num_adopted = chain.num_published = 0
        if req.status.is_finished:
            del self._chains[req.req_id]

    # --- below: names and figures ---------------------------------------------------------------------

    def _chain(self, req: Request) -> _Chain:
        chain = self._chains.get(req.req_id)
        if chain is None:
            chain = self._chains[req.req_id] = _Chain([self._no_keys])
        return chain

    def _name(self, req: Request, chain: _Chain, upto: int) -> None:
        """Names for blocks ``[0, upto)``, which are full of known tokens; only new ones are made."""
        named, size, prompt = len(chain.keys) - 1, self.block_size, req.num_prompt_tokens
        if upto <= named:
            return
        start, end = named * size, upto * size
        if start >= prompt:
            token_ids = req.output_ids[start - prompt : end - prompt]
        else:
            token_ids = req.prompt_ids[start:end]
            if end > prompt:
                token_ids += req.output_ids[: end - prompt]
        self._extend(chain.keys, token_ids)

    def _count(self, req: Request, chain: _Chain) -> None:
        """``req`` has come in for the first time."""
        chain.num_cached_tokens = chain.num_adopted * self.block_size
        if _may_hit(req):
            self.num_queried_tokens += req.num_tokens
            self.num_hit_tokens += chain.num_cached_tokens


def _may_hit(req: Request) -> bool:
    return req.params.prompt_logprobs is None
