"""A sampler around another filter: how variants of the exercise on sampling are made without copying the sampler.

Owns the short way from logits to tokens. Knows no processors and no log-probabilities: variants are compared in checks
that ask for neither.

vLLM: none; it belongs to the course.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stage1.batch import ForwardBatch, Sampled
from stage1.philox import exponential_noise
from stage1.sampler import TorchSampler

Filter = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def sampler_with(filter_logits: Filter) -> type[TorchSampler]:
    """A ``TorchSampler`` whose rows go through ``filter_logits``, with the engine's noise for the same seeds."""

    class VariantSampler(TorchSampler):
        """Samples every row of a batch."""

        def sample(self, logits: torch.Tensor, batch: ForwardBatch) -> Sampled:
            """``logits`` [R, vocab] → one token a row."""
            params = [state.params for state in batch.states]
            vocab = logits.shape[1]

            def column(values: list[float], dtype: torch.dtype) -> torch.Tensor:
                return torch.tensor(values, dtype=dtype)[:, None]  # [R, 1]

            kept = filter_logits(
                logits.float() / column([p.effective_temperature for p in params], torch.float32),
                column([p.top_k if 0 < p.top_k < vocab else vocab for p in params], torch.int64),
                column([p.top_p if p.top_p < 1 else 2.0 for p in params], torch.float32),
                column([p.min_p for p in params], torch.float32),
            )
            seeds = torch.tensor([state.seed for state in batch.states])
            positions = torch.tensor([state.num_output_tokens for state in batch.states])
            ids = (kept - exponential_noise(seeds, positions, vocab).log_()).argmax(dim=1)
            return Sampled(ids[:, None], torch.ones_like(ids), ~kept.amax(dim=1).isfinite())

    return VariantSampler
