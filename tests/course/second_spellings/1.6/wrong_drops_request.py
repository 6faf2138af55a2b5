"""Empties the seats' worth of the queue, then asks for blocks."""

from stage1.request import Status
from stage1.scheduler import StaticScheduler as Scheduler


class StaticScheduler(Scheduler):
    def _fill_batch(self) -> None:
        seats = min(self._max_num_seqs, len(self._waiting))
        for req in [self._waiting.popleft() for _ in range(seats)]:
            blocks = self._kv.allocate_slots(req, req.num_prompt_tokens)
            if blocks:
                req.status = Status.RUNNING
                self._blocks_to_send[req.req_id] = blocks
                self._batch.append(req)
