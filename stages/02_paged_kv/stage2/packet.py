"""The packet: all that the device must hear of a step, in one small copy.

Owns the layout and the pinned memory. Does not know what the numbers mean to a kernel.

    header      num_reqs  num_tokens  num_edits  0
    requests    row[R]  start[R]  query_start[R + 1]  samples[R]        each section as long as the most requests
    edits       index value  index value  …                             changes of the request table

``start`` is the position of a request's first token in this step, ``samples`` how many tokens may be drawn for it: one
and its drafts, none before the end of its prompt.
Example, A has 5 tokens of a prompt left to compute and B decodes its 7th token; they have rows 3 and 0:

    2 6 5 0 | 3 0 … | 0 6 … | 0 5 6 … | 1 1 … | five edits with A's tokens

A step that decodes sends no tokens: they lie in the table already. From pinned memory the copy queues behind the work
of earlier steps, so the host waits for nothing; a few buffers take turns, and a buffer is written again only when the
step that it was sent with is over.

vLLM: ``v1/worker/gpu_input_batch.py`` and the copies of ``v1/worker/gpu_model_runner.py`` (``_prepare_inputs``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from stage2.rows import Step
from stage2.state import Edit, RequestTable

HEADER = 4
MAX_EDITS = 1 << 16  # in a packet; a step with more sends them ahead in a copy of their own


class Packet:
    """The device's packet, and the pinned buffers that it is filled from.

    Args:
        max_reqs: most requests of a step.
        device: where the packet goes.
        turns: pinned buffers, one more than steps in flight.
    """

    def __init__(self, max_reqs: int, device: torch.device, turns: int = 3) -> None:
        self.max_reqs = max_reqs
        self.edits_at = HEADER + 4 * max_reqs + 1
        size = self.edits_at + 2 * MAX_EDITS
        self.data = torch.zeros(size, dtype=torch.int32, device=device)
        pinned = device.type == "cuda"
        self._buffers = [torch.zeros(size, dtype=torch.int32, pin_memory=pinned) for _ in range(turns)]
        self._views = [buffer.numpy() for buffer in self._buffers]
        self._turn = 0

    def send(self, step: Step, edits: list[Edit], table: RequestTable) -> None:
        """Start the copy of a step's packet.

        Args:
            step: the requests, in batch order.
            edits: changes of the request table.
            table: which takes them at once when the packet has no room.
        """
        if sum(len(values) for _, values in edits) > MAX_EDITS:
            apply_now(edits, table)
            edits = []
        self._turn = (self._turn + 1) % len(self._buffers)
        view, m, n = self._views[self._turn], self.max_reqs, len(step.rows)
        view[HEADER : HEADER + n] = step.index
        view[HEADER + m : HEADER + m + n] = step.starts
        starts = view[HEADER + 2 * m : HEADER + 2 * m + n + 1]
        starts[0] = 0
        np.cumsum(step.counts, out=starts[1:])
        view[HEADER + 3 * m + 1 : HEADER + 3 * m + 1 + n] = step.samples
        num_edits = write_edits(edits, view[self.edits_at :])
        view[:HEADER] = (n, step.num_tokens, num_edits, 0)
        used = self.edits_at + 2 * num_edits
        self.data[:used].copy_(self._buffers[self._turn][:used], non_blocking=True)

    def clear(self) -> None:
        """Make it a packet without requests: whatever size is computed then is all padding."""
        self.data[:HEADER] = 0

    # --- what the device sees; the views are [max_reqs] long --------------------------------------------

    @property
    def rows(self) -> torch.Tensor:
        """Row of each request."""
        return self.data[HEADER : HEADER + self.max_reqs]

    @property
    def starts(self) -> torch.Tensor:
        """Position of each request's first token."""
        return self.data[HEADER + self.max_reqs : HEADER + 2 * self.max_reqs]

    @property
    def query_start(self) -> torch.Tensor:
        """Where each request's tokens begin in the batch, [max_reqs + 1]."""
        return self.data[HEADER + 2 * self.max_reqs : HEADER + 3 * self.max_reqs + 1]

    @property
    def samples(self) -> torch.Tensor:
        """Most tokens that are drawn for each request."""
        return self.data[HEADER + 3 * self.max_reqs + 1 : self.edits_at]


def write_edits(edits: Sequence[Edit], out: np.ndarray) -> int:
    """Write changes as pairs (index, value) to ``out`` (int32); returns the number of pairs."""
    at = 0
    for indices, values in edits:
        n = len(values)
        out[2 * at : 2 * (at + n) : 2] = indices
        out[2 * at + 1 : 2 * (at + n) : 2] = values
        at += n
    return at


def apply_now(edits: Sequence[Edit], table: RequestTable) -> None:
    """Bring ``edits`` into the table with a copy of their own: for more of them than a packet holds."""
    size = sum(len(values) for _, values in edits)
    pinned = torch.empty(2 * size, dtype=torch.int32, pin_memory=table.memory.is_cuda)
    write_edits(edits, pinned.numpy())
    pairs = pinned.to(table.memory.device, non_blocking=True).view(-1, 2)
    table.memory.view(-1).index_copy_(0, pairs[:, 0].long(), pairs[:, 1])
