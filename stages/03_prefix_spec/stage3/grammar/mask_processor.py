"""Masks on the logits, in plain torch.

Owns the way from a step's ``GrammarMasks`` to the rows of logits that they are for. Does not know grammars. Rows that
are free are neither read nor written. Forbidding is adding minus infinity, as in ``stage1.logits_processors``.

    mask        bits of 101 tokens in 4 words
    logits      [L, 128]        tokens 101 … 127 have no bit, or a 0: forbidden

vLLM: ``v1/structured_output/utils.py`` (``apply_grammar_bitmask``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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


class DraftMasks:
    """Masks on the logits of a step with drafts: [R, width, vocab], row i of a request behind its first i drafts.

    ``rows`` are the places of the requests in the batch.
    """

    def __init__(
        self,
        sent: Sequence[GrammarMasks],
        rows: Mapping[str, int],
        width: int,
        device: torch.device,
        apply_masks: ApplyMasks = apply_masks,
    ) -> None:
        places = [
            rows[req_id] * width + i
            for extra in sent
            for req_id, count in zip(extra.req_ids, extra.counts, strict=True)
            for i in range(count)
        ]
        self._apply_masks = apply_masks
        self._masks = send_masks(sent, device) if places else None
        self._rows = to_device(places, torch.int64, device)

    def apply(self, logits: torch.Tensor) -> None:
        """Forbid, in place; ``logits`` is contiguous."""
        if self._masks is not None:
            self._apply_masks(logits.flatten(0, 1), self._masks, self._rows)


def send_masks(sent: Sequence[GrammarMasks], device: torch.device) -> torch.Tensor:
    """All masks of a step on ``device``, [G, words] int32, without waiting for it."""
    data = bytearray(b"".join(extra.data for extra in sent))
    masks = torch.frombuffer(data, dtype=torch.int32).view(-1, sent[0].num_words)
    return (masks.pin_memory() if device.type == "cuda" else masks).to(device, non_blocking=True)


def first_masks(extra: GrammarMasks) -> GrammarMasks:
    """Of each request the mask of its next token alone, as if it had no drafts."""
    size, kept, at = 4 * extra.num_words, [], 0
    for count in extra.counts:
        kept.append(extra.data[at : at + size])
        at += count * size
    return GrammarMasks(extra.req_ids, [1] * len(extra.req_ids), extra.num_words, b"".join(kept))


class GrammarMaskProcessor:
    """``LogitsProcessor`` of guided decoding. The logits have a row for each request and behind it one a draft."""

    def __init__(self, device: torch.device, apply_masks: ApplyMasks = apply_masks) -> None:
        self._device = device
        self._apply_masks = apply_masks
        self._masks: torch.Tensor | None = None  # [G, words] int32 of this step
        self._rows: torch.Tensor | None = None  # [G] int64

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Send the step's masks to the device, without waiting for it."""
        self._masks = self._rows = None
        sent = [extra for extra in plan.extras if isinstance(extra, GrammarMasks)]
        if not sent:
            return
        first_rows, row = {}, 0  # of each request
        for state in batch.states:
            first_rows[state.req_id] = row
            row += 1 + len(plan.drafts.get(state.req_id, ()))
        rows = [
            first_rows[req_id] + i
            for extra in sent
            for req_id, count in zip(extra.req_ids, extra.counts, strict=True)
            for i in range(count)
        ]
        self._masks = send_masks(sent, self._device)
        self._rows = to_device(rows, torch.int64, self._device)

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Forbid, in place."""
        if self._masks is not None and self._rows is not None:
            self._apply_masks(logits, self._masks, self._rows)
        return logits
