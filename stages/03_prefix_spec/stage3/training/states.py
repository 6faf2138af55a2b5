"""The target's hidden states of a whole corpus, computed once and kept.

Owns the memory they lie in. Four million tokens of SmolLM2-135M are 4.6 GB in bfloat16: where the GPU has room they
stay there, otherwise they lie in the host's memory and a batch's share is copied.

vLLM: none (it does not train).
"""

from __future__ import annotations

import torch

from stage1.memory import available_memory, check_memory
from stage3.training.batches import Batch, in_order, make_batch
from stage3.training.corpus import Corpus
from stage3.training.target import Target

GPU_SHARE = 0.4  # of the free memory that the states may take; the rest is for the training


class HiddenStates:
    """One state a token of the corpus."""

    def __init__(self, target: Target, corpus: Corpus, batch_tokens: int) -> None:
        size = len(corpus.tokens) * target.shape.hidden_size * target.dtype.itemsize
        fits = target.device.type == "cpu" or size < GPU_SHARE * available_memory(target.device)
        place = target.device if fits else torch.device("cpu")
        check_memory(size, "the hidden states of the corpus", place)
        self._device = target.device
        self._states = torch.empty(len(corpus.tokens), target.shape.hidden_size, dtype=target.dtype, device=place)
        for rows in in_order(corpus, batch_tokens):
            batch = make_batch(corpus, rows, target.device)
            hidden = target.hidden(batch.tokens)  # [B, S, hidden]
            real = torch.arange(hidden.shape[1], device=target.device) < batch.lengths[:, None]
            self._states[batch.places[real].to(place)] = hidden[real].to(place)

    def of(self, batch: Batch) -> torch.Tensor:
        """[B, S, hidden] on the target's device; a padded place has its sequence's last state."""
        return self._states[batch.places.to(self._states.device)].to(self._device)
