"""Rectangles of sequences of similar length, and which of their positions a loss counts.

Owns the order of the training. Does not know models.

vLLM: none (it does not train).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from stage3.training.corpus import Corpus


@dataclass(frozen=True, eq=False)
class Batch:
    """B sequences padded to the longest, S; a padded place repeats its sequence's last token."""

    places: torch.Tensor  # [B, S] int64, index into the corpus's tokens
    tokens: torch.Tensor  # [B, S] int64
    lengths: torch.Tensor  # [B] int64
    prompt_lens: torch.Tensor  # [B] int64

    def chain_weights(self, decays: torch.Tensor) -> torch.Tensor:
        """What each head's prediction counts: ``decays`` [J] float32 → [J, B, S].

        Entry (j, b, t) is for token t + 1, which head j (0 the first) predicts behind the chain's start p = t - 1 - j.
        It counts where the engine would draft so: p is the prompt's last token or an output token, and token t + 1
        is in the sequence.

            prompt a b c, output d e f        p = 2 (c): the target gives d, head 0 drafts e, head 1 drafts f
        """
        steps = torch.arange(len(decays), device=self.tokens.device)[:, None, None]
        t = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        starts = t - 1 - steps >= self.prompt_lens[:, None] - 1  # [J, B, S]
        counts = starts & (t + 1 < self.lengths[:, None])
        return counts * decays.to(self.tokens.device)[:, None, None]


def make_batch(corpus: Corpus, rows: torch.Tensor, device: torch.device) -> Batch:
    """The sequences ``rows`` [B] int64 of ``corpus``."""
    lengths = corpus.lengths[rows]
    step = torch.minimum(torch.arange(int(lengths.max())), lengths[:, None] - 1)  # [B, S]
    places = corpus.offsets[rows][:, None] + step
    tokens = corpus.tokens[places].long()
    parts = (places, tokens, lengths, corpus.prompt_lens[rows])
    return Batch(*(part.to(device, non_blocking=True) for part in parts))


def in_order(corpus: Corpus, batch_tokens: int) -> list[torch.Tensor]:
    """All sequences once, by length: lists of rows of which each makes at most ``batch_tokens`` places, padding too."""
    return _cut(corpus.lengths.argsort(stable=True), corpus.lengths, batch_tokens)


def endless(corpus: Corpus, batch_tokens: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Rows of batch after batch, epoch after epoch; lengths are blurred, so that the neighbours change.

    Raises:
        ValueError: there is no sequence.
    """
    if corpus.num_seqs == 0:
        raise ValueError("the corpus has no sequence: raise --tokens or --generate-seconds")
    while True:
        blur = 1 + 0.1 * torch.rand(corpus.num_seqs, generator=generator)
        parts = _cut((corpus.lengths * blur).argsort(), corpus.lengths, batch_tokens)
        for i in torch.randperm(len(parts), generator=generator).tolist():
            yield parts[i]


def _cut(order: torch.Tensor, lengths: torch.Tensor, batch_tokens: int) -> list[torch.Tensor]:
    parts: list[list[int]] = []
    longest = 0
    for row, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        longest = max(longest, length)
        if not parts or longest * (len(parts[-1]) + 1) > batch_tokens:
            parts.append([])
            longest = length
        parts[-1].append(row)
    return [torch.tensor(part) for part in parts]
