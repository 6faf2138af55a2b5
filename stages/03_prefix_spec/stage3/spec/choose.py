"""From a drafter's logits to a draft: the likeliest token, or one drawn like the target's.

Owns the two ways, and the probabilities that the second one leaves for the verification. Does not know drafters.

    best     the likeliest token, whatever the temperature is; verified by match: output as without drafts
    drawn    a token drawn from q, by the request's own rules; verified by rejection, which needs q of every draft

A draft that is not random stays with the target's probability p(d) of it; one drawn from q stays with the probability
Σ min(p, q), which is more where the temperature is high. ``rejection`` has the arithmetic.

vLLM: ``v1/spec_decode/eagle.py`` (``compute_probs_and_sample_next_token``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from stage2.inputs import StepBatch
from stage2.state import RequestTable
from stage3.spec.rejection import DrawRules, draw, kept_logits
from stage3.spec.steps import Known

Best = Callable[[torch.Tensor], torch.Tensor]  # [N, vocab] → [N] int64


class Choose(Protocol):
    """Makes drafts of logits, on the device and without waiting for it."""

    def __call__(self, logits: torch.Tensor, number: int, batch: StepBatch, known: Known) -> torch.Tensor:
        """Drafts of each request, from number ``number`` on: [n, R, vocab] → [n, R] int64.

        Args:
            logits: the drafter's.
            number: 0 = the token behind the newest known one.
            batch: the step that was computed.
            known: what is known of its requests.
        """


def best_tokens(logits: torch.Tensor) -> torch.Tensor:
    """[N, vocab] → the first of the likeliest, [N] int64."""
    return logits.argmax(dim=1)


class ChooseBest:
    """``Choose`` the likeliest, by ``best``."""

    def __init__(self, best: Best = best_tokens) -> None:
        self._best = best

    def __call__(self, logits: torch.Tensor, number: int, batch: StepBatch, known: Known) -> torch.Tensor:
        """See ``Choose``."""
        return self._best(logits.flatten(0, 1)).view(logits.shape[:2])


class ChooseDrawn:
    """``Choose`` by a draw with the request's temperature and filters, and remember the probabilities.

    Args:
        num_drafts: most drafts of a request.
        keep: ``kept_logits`` or what does the same faster.
    """

    def __init__(self, num_drafts: int, keep: Callable[[torch.Tensor, DrawRules], torch.Tensor] = kept_logits) -> None:
        self._num_drafts = num_drafts
        self._keep = keep
        self._probs = torch.empty(0)

    def allocate(self, table: RequestTable, vocab_size: int) -> None:
        """Make room for the drafts of every row of ``table``, and a row more for padding; float32."""
        self._probs = torch.empty(0)  # of an earlier runner's table: let go before the next is made
        size = (table.num_rows + 1, self._num_drafts, vocab_size)
        self._probs = torch.zeros(size, device=table.memory.device)

    def __call__(self, logits: torch.Tensor, number: int, batch: StepBatch, known: Known) -> torch.Tensor:
        """See ``Choose``; a draft is drawn with the noise that plain decoding has at its position."""
        first = known.lengths - (batch.seq_lens - batch.draw_positions)  # [R], output tokens known
        rows = torch.where(known.lengths > 0, batch.rows, len(self._probs) - 1)
        ids = []
        for place, of_place in enumerate(logits, number):
            positions = (first + place).clamp(min=0)
            rules = DrawRules(batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.seeds, positions)
            kept = self._keep(of_place, rules)
            self._probs[rows, place] = kept.softmax(dim=1)
            ids.append(draw(kept, rules))
        return torch.stack(ids)

    def probs(self, batch: StepBatch, num_drafts: int) -> torch.Tensor:
        """q of the drafts that ``batch`` verifies, [R, num_drafts, vocab]; behind a request's drafts any."""
        return self._probs[batch.rows, :num_drafts]
