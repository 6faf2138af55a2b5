"""A request leaves the queue before it has a block.

Look at the first of the queue, ask for its block, and only then take it out. A request that was taken out and got
``None`` is nowhere: not in the batch, not in the queue, and its user waits for ever.
"""

from __future__ import annotations

from stage1.request import Status
from stage1.scheduler import StaticScheduler as Reference


class StaticScheduler(Reference):
    """Loses whoever comes while the cache is full."""

    def _fill_batch(self) -> None:
        """popleft comes first."""
        while self._waiting and len(self._batch) < self._max_num_seqs:
            req = self._waiting.popleft()
            block_ids = self._kv.allocate_slots(req, req.num_tokens)
            if block_ids is None:
                break
            req.status = Status.RUNNING
            self._blocks_to_send[req.req_id] = block_ids
            self._batch.append(req)
