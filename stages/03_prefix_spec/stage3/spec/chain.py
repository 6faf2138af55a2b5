"""A chain of guesses: each is computed behind the one before it, a token a request and pass.

Owns positions, slots and the end of the chain. Does not know the layers that guess.

    known      … x                    n = 8 tokens, x was just drawn at position 7
    pass 0     position 7             where keys and values of the pass go
    pass 1     position 8             they lie in the request's blocks, at the same place as the model's own
    capacity   9                      the blocks end: pass 2 would have no slot, so nothing more is guessed

The next step computes all of these positions again, from what is really known: whatever a chain left there is gone.

vLLM: ``v1/spec_decode/eagle.py`` (``propose``).
"""

from __future__ import annotations

from dataclasses import replace

import torch

from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.steps import Known


class Chain:
    """Up to ``num_passes`` passes behind the known tokens of a step.

    Args:
        batch: the step.
        known: what is known of its requests; pass 0 is at position ``lengths - 1``.
        num_passes: most passes.
        table: the request table, which knows where a request's blocks end.
        block_size: tokens of a block.
        max_model_len: tokens of a request, in all.
    """

    def __init__(
        self, batch: StepBatch, known: Known, num_passes: int, table: RequestTable, block_size: int, max_model_len: int
    ) -> None:
        device = batch.rows.device
        self._batch = batch
        positions = known.lengths - 1 + torch.arange(num_passes, device=device)[:, None]  # [passes, R]
        self._positions = positions.clamp(0, max_model_len - 1)
        block = table.block_table[batch.rows, self._positions // block_size]  # NO_BLOCK behind a request's last one
        # A chain ends at its first pass without a slot: behind it the table may hold anything.
        fits = (block >= 0) & (known.lengths > 0) & (positions < max_model_len)
        fits = fits.cumprod(dim=0).bool()
        self._slots = torch.where(fits, block.long() * block_size + self._positions % block_size, -1)
        self._seq_lens = torch.where(fits, self._positions + 1, 1)  # a request that guesses no more reads one key
        self._blocks = table.block_table[batch.rows].clamp(min=0)  # [R, B]
        self._max_seq_len = min(batch.max_seq_len + num_passes + 1, max_model_len)
        self._starts = torch.arange(len(batch.rows) + 1, device=device)
        self.num_fitting = fits.sum(dim=0)  # [R], passes of each request that have a slot

    def batch(self, number: int, input_ids: torch.Tensor) -> StepBatch:
        """The inputs of pass ``number``: a token a request, ``input_ids`` [R]."""
        return replace(
            self._batch,
            input_ids=input_ids,
            positions=self._positions[number],
            slot_mapping=self._slots[number],
            seq_lens=self._seq_lens[number],
            single_lens=self._seq_lens[number],
            block_table=self._blocks,
            query_start=self._starts,
            logits_rows=self._starts[:-1],
            num_chunks=0,
            num_singles=len(self._starts) - 1,
            max_query_len=1,
            max_draws=1,
            max_seq_len=self._max_seq_len,
        )
