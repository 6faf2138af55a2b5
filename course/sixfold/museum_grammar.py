"""The bug museum, guided decoding: masks on logits with one reduced fault.

Owns the fault. It is right for nearly every step, so it must be found from what goes wrong. What is wrong is not told
here but in the notebook that shows it.

vLLM: none; the fault is of engines in general.
"""

from __future__ import annotations

import torch

from stage1.batch import ForwardBatch
from stage1.logits_processors import default_processors
from stage1.records import SchedulerOutput
from stage3.grammar.mask_processor import apply_masks, send_masks
from stage3.grammar.records import GrammarMasks


class SuspectMaskProcessor:
    """A ``LogitsProcessor`` that forbids what the step's masks do not allow. For an engine without drafts."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.masks: torch.Tensor | None = None  # [G, words] int32
        self.rows = torch.empty(0, dtype=torch.int64)  # [G]

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Find the row of each guided request."""
        sent = [extra for extra in plan.extras if isinstance(extra, GrammarMasks)]
        self.masks = send_masks(sent, self.device) if sent else None
        places = self.places(batch)
        self.rows = torch.tensor([places[req_id] for extra in sent for req_id in extra.req_ids], device=self.device)

    def places(self, batch: ForwardBatch) -> dict[str, int]:
        """The row of each request's logits."""
        drawing = [state.req_id for state, draws in zip(batch.states, batch.samples, strict=True) if draws]
        return {req_id: row for row, req_id in enumerate(drawing)}

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Forbid, in place."""
        if self.masks is not None:
            apply_masks(logits, self.masks, self.rows)
        return logits


def suspect_processors(vocab_size: int, device: torch.device) -> tuple[object, ...]:
    """The usual processors, and the suspect one behind them."""
    return (*default_processors(vocab_size, device), SuspectMaskProcessor(device))
