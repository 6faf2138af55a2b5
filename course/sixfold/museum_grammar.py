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
from stage3.grammar.mask_processor import StepMasks


class SuspectMaskProcessor:
    """A ``LogitsProcessor`` that forbids what the step's masks do not allow. For an engine without drafts."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.masks: StepMasks | None = None

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Find the row of each guided request."""
        self.masks = StepMasks(plan, self.places(batch), self.device)

    def places(self, batch: ForwardBatch) -> dict[str, int]:
        """The row of each request's logits."""
        drawing = [state.req_id for state, draws in zip(batch.states, batch.samples, strict=True) if draws]
        return {req_id: row for row, req_id in enumerate(drawing)}

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Forbid, in place."""
        if self.masks is not None:
            self.masks.apply(logits)
        return logits


def suspect_processors(vocab_size: int, device: torch.device) -> tuple[object, ...]:
    """The usual processors, and the suspect one behind them."""
    return (*default_processors(vocab_size, device), SuspectMaskProcessor(device))
