"""Masks on the logits, in plain torch.

Owns the way from a step's ``GrammarMasks`` to the rows of logits that they are for. Does not know grammars. Rows that
are free are neither read nor written. Forbidding is adding minus infinity, as in ``stage1.logits_processors``.

    mask        bits of 101 tokens in 4 words
    logits      [L, 128]        tokens 101 … 127 have no bit, or a 0: forbidden

vLLM: ``v1/structured_output/utils.py`` (``apply_grammar_bitmask``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from stage1.batch import ForwardBatch
from stage1.records import SchedulerOutput
from stage1.transfer import to_device
from stage3.grammar.masks import WORD
from stage3.grammar.records import GrammarMasks

ApplyMasks = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]


def apply_masks(logits: torch.Tensor, masks: torch.Tensor, rows: torch.Tensor) -> None:
    """Forbid in row ``rows[i]`` what ``masks[i]`` does not allow, in place.

    Args:
        logits: [L, vocab] of a floating dtype.
        masks: [G, words] int32.
        rows: [G] int64, each row at most once.
    """
    vocab_size = logits.shape[1]
    bit = torch.arange(WORD, dtype=torch.int32, device=logits.device)
    allowed = (masks[:, :, None] >> bit & 1).flatten(1)[:, :vocab_size].bool()  # [G, min(words * 32, vocab)]
    added = torch.full((len(rows), vocab_size), -torch.inf, dtype=logits.dtype, device=logits.device)
    added[:, : allowed.shape[1]].masked_fill_(allowed, 0.0)
    logits.index_add_(0, rows, added)


class StepMasks:
    """The masks of a step on the device, each with the row of logits that it is for.

    Args:
        plan: of the step.
        first_rows: the row of each request's next token; the rows behind its drafts follow it.
        device: of the logits.
        apply_masks: what forbids.
    """

    def __init__(
        self,
        plan: SchedulerOutput,
        first_rows: Mapping[str, int],
        device: torch.device,
        apply_masks: ApplyMasks = apply_masks,
    ) -> None:
        self._apply_masks = apply_masks
        self._masks: torch.Tensor | None = None  # [G, words] int32
        sent = [extra for extra in plan.extras if isinstance(extra, GrammarMasks)]
        if not sent:
            return
        rows = [
            first_rows[req_id] + i
            for extra in sent
            for req_id, count in zip(extra.req_ids, extra.counts, strict=True)
            for i in range(count)
        ]
        data = bytearray(b"".join(extra.data for extra in sent))
        masks = torch.frombuffer(data, dtype=torch.int32).view(len(rows), sent[0].num_words)
        pinned = masks.pin_memory() if device.type == "cuda" else masks
        self._masks = pinned.to(device, non_blocking=True)
        self._rows = to_device(rows, torch.int64, device)  # [G]

    def apply(self, logits: torch.Tensor) -> None:
        """Forbid in ``logits`` [L, vocab], in place."""
        if self._masks is not None:
            self._apply_masks(logits, self._masks, self._rows)


def first_masks(extra: GrammarMasks) -> GrammarMasks:
    """Of each request the mask of its next token alone, as if it had no drafts."""
    size, kept, at = 4 * extra.num_words, [], 0
    for count in extra.counts:
        kept.append(extra.data[at : at + size])
        at += count * size
    return GrammarMasks(extra.req_ids, [1] * len(extra.req_ids), extra.num_words, b"".join(kept))


class GrammarMaskProcessor:
    """``LogitsProcessor`` of guided decoding, for logits with a row a request: steps with drafts ask ``StepMasks``."""

    def __init__(self, device: torch.device, apply_masks: ApplyMasks = apply_masks) -> None:
        self._device = device
        self._apply_masks = apply_masks
        self._masks: StepMasks | None = None

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Send the step's masks to the device, without waiting for it."""
        rows = {state.req_id: row for row, state in enumerate(batch.states)}
        self._masks = StepMasks(plan, rows, self._device, self._apply_masks)

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Forbid, in place."""
        if self._masks is not None:
            self._masks.apply(logits)
        return logits
