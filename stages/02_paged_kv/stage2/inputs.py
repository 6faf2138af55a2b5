"""A step's inputs: static buffers on the device, and the plain code that fills them from packet and table.

Owns the buffers that model, attention and sampler read, and the arithmetic of positions, slots and lengths. Does not
know plans. The buffers are always the same memory, because a captured graph reads what it read when it was captured;
a batch is a set of views of them, padded to what its graph was captured for.

    request  row  start  n    position = start, start + 1, …    input id = token_ids[row, position]
    seq_len = start + n       slot = block_table[row, position // block_size] * block_size + position % block_size

Padding: a request has length 0 and no tokens, a token has slot -1 and nothing of it is stored or read.

``kernels/step_inputs.py`` does the same in two launches.

vLLM: ``v1/worker/gpu_model_runner.py`` (``_prepare_inputs``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from stage1.batch import ForwardBatch
from stage2.packet import Packet
from stage2.state import BLOCKS, MIN_P, NUM_PROMPT, SEED, TEMPERATURE, TOP_K, TOP_P, RequestTable

SlotMapping = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]


MOST_FEW = 8  # queries of a request that the kernel of decoding takes
MOST_CUT = 512  # tokens of a step that it may cut the keys of: partial results take room for each


@dataclass(slots=True, eq=False, kw_only=True)
class StepBatch(ForwardBatch):
    """``ForwardBatch`` with what a draw needs, on the device, and what the launches may assume.

    Example: A decodes, B computes 40 tokens of its prompt. (From stage 3 on a request may send drafts behind its last
    token: with two of them ``max_draws`` is 3, and A's numbers are those in brackets.)

                 A         B
        tokens   1 (3)     40       max_query_len 40
        draws    1 (3)     0        most tokens that come of it
        few_lens 12 (14)   0        its length where it has at most ``max_few`` tokens: 1 (3)
                 few       chunk    num_few 1, num_chunks 1: each kind has an attention kernel
    """

    temperature: torch.Tensor  # [R] float32, 0 = greedy
    top_p: torch.Tensor  # [R] float32
    min_p: torch.Tensor  # [R] float32
    top_k: torch.Tensor  # [R] int64
    seeds: torch.Tensor  # [R] int64
    draw_positions: torch.Tensor  # [R] int64, output position of the token to draw
    few_lens: torch.Tensor  # [R] int64, seq_lens where a request has at most ``max_few`` tokens in this step, else 0
    draws: torch.Tensor  # [R] int64, most tokens that are drawn; 0 = a prompt is not at its end, or padding
    num_chunks: int = 0  # at most so many requests have more than ``max_few`` tokens
    num_few: int = 0  # at most so many have not
    max_draws: int = 1  # rows of logits a request: 1 + drafts
    cut: bool | None = None  # whether attention to few queries cuts the keys of long requests; None: as it sees fit

    @property
    def max_few(self) -> int:
        """Tokens of a request up to which it is attended to as one that decodes: its last one and its drafts."""
        return self.max_draws if self.max_draws <= MOST_FEW else 1


class StepBuffers:
    """Memory for the inputs of any step of at most ``max_reqs`` requests and ``max_tokens`` tokens."""

    def __init__(self, max_reqs: int, max_tokens: int, max_blocks: int, device: torch.device) -> None:
        def ids(*size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        self.input_ids, self.positions, self.slot_mapping = ids(max_tokens), ids(max_tokens), ids(max_tokens)
        self.query_start, self.seq_lens, self.logits_rows = ids(max_reqs + 1), ids(max_reqs), ids(max_reqs)
        self.block_table = torch.zeros(max_reqs, max_blocks, dtype=torch.int32, device=device)
        self.temperature, self.top_p, self.min_p = torch.zeros(3, max_reqs, device=device).unbind()
        self.top_k, self.seeds = ids(max_reqs), ids(max_reqs)
        self.draw_positions, self.draws, self.rows = ids(max_reqs), ids(max_reqs), ids(max_reqs)
        self.few_lens = ids(max_reqs)

    def batch(self, num_reqs: int, num_tokens: int, **described: Any) -> StepBatch:
        """Views for ``num_reqs`` requests and ``num_tokens`` tokens; ``described`` are its other fields."""
        r, t = slice(num_reqs), slice(num_tokens)
        return StepBatch(
            rows=self.rows[r],
            input_ids=self.input_ids[t],
            positions=self.positions[t],
            query_start=self.query_start[: num_reqs + 1],
            seq_lens=self.seq_lens[r],
            block_table=self.block_table[r],
            slot_mapping=self.slot_mapping[t],
            logits_rows=self.logits_rows[r],
            temperature=self.temperature[r],
            top_p=self.top_p[r],
            min_p=self.min_p[r],
            top_k=self.top_k[r],
            seeds=self.seeds[r],
            draw_positions=self.draw_positions[r],
            draws=self.draws[r],
            few_lens=self.few_lens[r],
            **described,
        )


class InputFiller(Protocol):
    """Fills a batch's buffers on the device."""

    def fill(self, batch: StepBatch) -> None:
        """Bring the packet's edits into the table, then fill the views of ``batch``, padding included."""

    def remember(self, batch: StepBatch, ids: torch.Tensor, bad: torch.Tensor, result: torch.Tensor) -> None:
        """Write drawn tokens into the table for the next step, and into ``result`` for the host.

        Args:
            batch: the step's.
            ids: [R] int64, one token a request.
            bad: [R] bool, no token could be drawn.
            result: [2, max_reqs] int32: ids, and for each 0 = none drawn, 1 = drawn, 2 = bad.
        """


class PlainInputs:
    """``InputFiller`` in torch operations, on any device: the oracle of the kernels."""

    def __init__(self, packet: Packet, table: RequestTable, block_size: int, slots: SlotMapping) -> None:
        self._packet, self._table = packet, table
        self._block_size = block_size
        self._slots = slots

    def fill(self, batch: StepBatch) -> None:
        """See ``InputFiller``; waits for the device."""
        packet, memory = self._packet, self._table.memory
        num_reqs, num_tokens, num_edits, _ = packet.data[:4].tolist()
        pairs = packet.data[packet.edits_at : packet.edits_at + 2 * num_edits].view(-1, 2)
        memory.view(-1).index_copy_(0, pairs[:, 0].long(), pairs[:, 1])

        rows, start = packet.rows[:num_reqs].long(), packet.starts[:num_reqs].long()
        query_start = packet.query_start[: num_reqs + 1].long()
        counts = query_start.diff()  # [R]
        _fill(batch.rows, rows)
        _fill(batch.query_start, query_start, query_start[-1].item())
        _fill(batch.seq_lens, start + counts)
        _fill(batch.few_lens, torch.where(counts <= batch.max_few, start + counts, 0))
        _fill(batch.logits_rows, query_start[1:] - 1)
        batch.block_table[:num_reqs] = self._table.block_table[rows]
        self._fill_tokens(batch, rows, start, query_start, num_tokens)

        columns = memory[:, :BLOCKS][rows]  # [R, 12]
        _fill(batch.temperature, columns[:, TEMPERATURE].view(torch.float32))
        _fill(batch.top_p, columns[:, TOP_P].view(torch.float32), 1.0)
        _fill(batch.min_p, columns[:, MIN_P].view(torch.float32))
        _fill(batch.top_k, columns[:, TOP_K])
        low, high = columns[:, SEED].long() & 0xFFFFFFFF, columns[:, SEED + 1].long()
        _fill(batch.seeds, low | high << 32)
        _fill(batch.draw_positions, start + counts - columns[:, NUM_PROMPT])
        _fill(batch.draws, packet.samples[:num_reqs])

    def _fill_tokens(
        self, batch: StepBatch, rows: torch.Tensor, start: torch.Tensor, query_start: torch.Tensor, num_tokens: int
    ) -> None:
        request = torch.repeat_interleave(query_start.diff(), output_size=num_tokens)  # [T]
        offset = torch.arange(num_tokens, device=rows.device) - query_start[request]
        positions = start[request] + offset  # [T]
        _fill(batch.positions, positions)
        _fill(batch.input_ids, self._table.token_ids[rows[request], positions])
        _fill(batch.slot_mapping, self._slots(batch.block_table, request, positions, self._block_size), -1)

    def remember(self, batch: StepBatch, ids: torch.Tensor, bad: torch.Tensor, result: torch.Tensor) -> None:
        """See ``InputFiller``."""
        drawn = batch.draws > 0  # [R]
        rows, positions = batch.rows[drawn], batch.seq_lens[drawn]
        self._table.token_ids[rows, positions] = ids[drawn].int()
        result[0, : len(ids)] = ids.int()
        result[1, : len(ids)] = (batch.draws * (1 + bad.long())).int()


def _fill(target: torch.Tensor, values: torch.Tensor, padding: float = 0) -> None:
    """Write ``values`` to the front of ``target`` and ``padding`` behind them."""
    target[: len(values)] = values
    target[len(values) :] = padding
