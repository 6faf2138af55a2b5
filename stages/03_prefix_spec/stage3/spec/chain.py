"""A chain of guesses: each is computed behind the one before it, a token a request and pass.

Owns positions, slots and the end of the chain. Does not know the layers that guess.

    known      … x                    n = 8 tokens, x was just drawn at position 7
    pass 0     position 7             where keys and values of the pass go
    pass 1     position 8             they lie in the request's blocks, at the same place as the model's own
    capacity   9                      the blocks end: pass 2 would have no slot, so nothing more is guessed

The next step computes all of these positions again, from what is really known: whatever a chain left there is gone.
``chain_kernel`` plans in one launch.

vLLM: ``v1/spec_decode/eagle.py`` (``propose``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.steps import Known


@dataclass(frozen=True)
class ChainLimits:
    """What ends a chain."""

    num_drafts: int  # most guesses
    num_passes: int  # at least 1; with one less than guesses the first guess needs no pass of its own
    block_size: int
    max_model_len: int


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """The passes behind the known tokens of a step; int64 tensors, [passes, R] unless said."""

    positions: torch.Tensor
    slots: torch.Tensor  # -1 = the pass has none, and its guess is dropped
    seq_lens: torch.Tensor  # keys that the pass sees, its own included
    blocks: torch.Tensor  # [R, B] int32, the block table as far as any pass reads it
    starts: torch.Tensor  # [R + 1], 0 … R: a token a request
    counts: torch.Tensor  # [R], guesses of each request

    def batch(self, step: StepBatch, number: int, input_ids: torch.Tensor) -> StepBatch:
        """The inputs of pass ``number`` behind ``step``: a token a request, ``input_ids`` [R]."""
        return replace(
            step,
            input_ids=input_ids,
            positions=self.positions[number],
            slot_mapping=self.slots[number],
            seq_lens=self.seq_lens[number],
            few_lens=self.seq_lens[number],
            block_table=self.blocks,
            query_start=self.starts,
            has_gaps=True,
            num_chunks=0,
            num_few=len(input_ids),
            max_query_len=1,
            max_draws=1,
            max_seq_len=step.max_seq_len + len(self.positions) + 1,
        )


PlanChain = Callable[[StepBatch, Known, ChainLimits, RequestTable], Chain]


def plan_chain(step: StepBatch, known: Known, limits: ChainLimits, table: RequestTable) -> Chain:
    """The chain behind ``step``.

    Args:
        step: what was computed.
        known: what is known of its requests; pass 0 is at position ``lengths - 1``.
        limits: what ends it.
        table: knows where a request's blocks end.
    """
    number = torch.arange(limits.num_passes, device=step.rows.device)[:, None]
    wanted = known.lengths - 1 + number  # [passes, R]
    positions = wanted.clamp(0, limits.max_model_len - 1)
    block = table.block_table[step.rows, positions // limits.block_size]  # NO_BLOCK behind a request's last one
    # A chain ends at its first pass without a slot: behind it the table may hold anything.
    fits = (block >= 0) & (known.lengths > 0) & (wanted < limits.max_model_len)
    fits = fits.cumprod(dim=0).bool()
    # A token follows the last guess, hence one less than the request may have.
    room = (limits.max_model_len - 1 - known.lengths).clamp(min=0)
    counts = torch.minimum(limits.num_drafts - limits.num_passes + fits.sum(dim=0), room)
    return Chain(
        positions=positions,
        slots=torch.where(fits, block.long() * limits.block_size + positions % limits.block_size, -1),
        seq_lens=torch.where(fits, positions + 1, 1),  # a request that guesses no more reads one key
        blocks=table.block_table[step.rows].clamp(min=0),
        starts=torch.arange(len(step.rows) + 1, device=step.rows.device),
        counts=torch.where(known.lengths > 0, counts, 0),
    )
