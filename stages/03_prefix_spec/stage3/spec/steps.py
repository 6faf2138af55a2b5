"""Where things are in a step that verifies drafts, in plain torch.

Owns the arithmetic of rows and positions. Does not know models, kernels or how a draft was made.

A request with drafts sends its last token and the drafts behind it; a request without sends what a plain step does.

    A: a6 | d0 d1    B: b9    C: half a prompt, c0 c1 c2          query_start 0 3 4 7     draws 3 1 0
    rows of logits   A: 0 1 2     B: 3 3 3     C: 6 6 6           [R, max_draws], the last one repeated
    d0 stayed        A: 2 tokens, 9 known; the newest was drawn behind row 1

``draws`` counts the tokens that may come of a request: 1 + its drafts, 0 before the end of its prompt.

vLLM: ``v1/worker/gpu_model_runner.py`` (``_calc_spec_decode_metadata``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from stage1.batch import Sampled
from stage1.interfaces import Drafts
from stage2.inputs import StepBatch
from stage2.pending import BAD
from stage2.state import RequestTable
from stage3.spec.rejection import DrawRules

FLAGS, COUNTS, FURTHER = 1, 2, 3  # lines of a step's result; line 0 has each request's first token


def num_lines(num_drafts: int) -> int:
    """Lines of a step's result: ids, flags, counts, further ids, drafts and how many of them there are."""
    return draft_lines(num_drafts).stop


def draft_lines(num_drafts: int) -> slice:
    """Of these lines those of the next drafts: their ids, and behind them how many there are."""
    return slice(FURTHER + num_drafts, FURTHER + 2 * num_drafts + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where the draws of a step are, and how each is made; N = R * max_draws."""

    rows: torch.Tensor  # [N] int64, of the hidden states; behind a request's drafts its last one again
    drafts: Drafts  # [R, max_draws - 1] ids, any behind the counts
    rules: DrawRules  # of the N draws

    @classmethod
    def of(cls, batch: StepBatch) -> Places:
        """The draws of ``batch``."""
        last = (batch.query_start[1:] - 1).clamp(min=0)[:, None]  # [R, 1]
        num_drafts = _num_drafts(batch)
        rows = torch.minimum(last - num_drafts[:, None] + torch.arange(batch.max_draws, device=last.device), last)
        first = batch.draw_positions - num_drafts
        rules = DrawRules(batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.seeds, first)
        drafts = Drafts(batch.input_ids[rows[:, 1:]], num_drafts)
        return cls(rows.flatten(), drafts, rules.at_each_position(batch.max_draws))


def remember(batch: StepBatch, sampled: Sampled, table: RequestTable, result: torch.Tensor) -> None:
    """Write the drawn tokens where the next step reads them, and into ``result`` for the host. Waits for the device.

    Args:
        batch: the step's.
        sampled: ids [R, max_draws], of which each request keeps ``counts``; none before the end of its prompt.
        table: whose rows get the tokens.
        result: [lines, max_reqs] int32, see ``num_lines``.
    """
    num_reqs, width = sampled.ids.shape
    place = torch.arange(width, device=sampled.ids.device)
    counts = torch.where(batch.draws > 0, sampled.counts, 0)  # [R]
    meant = place < counts[:, None]  # [R, max_draws]
    known = batch.seq_lens - _num_drafts(batch)  # [R], before this step's tokens
    table.token_ids[batch.rows[:, None].expand_as(meant)[meant], (known[:, None] + place)[meant]] = sampled.ids[
        meant
    ].int()
    result[0, :num_reqs] = sampled.ids[:, 0].int()
    result[FLAGS, :num_reqs] = torch.where(counts > 0, torch.where(sampled.bad, BAD, 1), 0).int()
    result[COUNTS, :num_reqs] = counts.int()
    result[FURTHER : FURTHER + width - 1, :num_reqs] = sampled.ids[:, 1:].int().T


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of each request when a step's tokens have been drawn; [R] int64 tensors."""

    lengths: torch.Tensor  # tokens, the newest included; 0 = nothing was drawn, so nothing is drafted
    last_rows: torch.Tensor  # the row of the step's hidden state that the newest was drawn behind


def know(batch: StepBatch, result: torch.Tensor) -> Known:
    """What is known of the requests of ``batch``, whose tokens ``result`` [lines, max_reqs] holds."""
    lines = result[:, : batch.num_reqs].long()
    counts = lines[FLAGS].clamp(max=1) if batch.max_draws == 1 else lines[COUNTS]  # [R]
    counts = torch.where(batch.draws > 0, counts, 0)  # of padding the lines are older
    num_drafts = _num_drafts(batch)
    lengths = torch.where(counts > 0, batch.seq_lens - num_drafts + counts, 0)
    rejected = torch.where(counts > 0, num_drafts + 1 - counts, 0)
    return Known(lengths, (batch.query_start[1:] - 1 - rejected).clamp(min=0))


@dataclass(frozen=True)
class StepOperations:
    """This module's functions, or faster ones that do the same."""

    place: Callable[[StepBatch], Places] = Places.of
    remember: Callable[[StepBatch, Sampled, RequestTable, torch.Tensor], None] = remember
    know: Callable[[StepBatch, torch.Tensor], Known] = know


def _num_drafts(batch: StepBatch) -> torch.Tensor:
    return (batch.draws - 1).clamp(min=0)  # [R]
