"""From logits to tokens with kernels: one pass for a draw, a threshold search for filters, no sort and no waiting.

Owns the choice of what a batch needs. Does not know the kernels' insides, nor requests beyond their ``RowState``.

A batch without ``states`` is drawn greedily or at its temperatures, by launches that depend on shapes alone: that is
what a graph captures. What a captured draw cannot do (processors, filters, log-probabilities) is decided on the host,
from ``states``, and still queued without waiting for the device. ``stage1.sampler.TorchSampler`` is the plain version,
with the same tokens.

vLLM: ``v1/sample/sampler.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stage1.batch import ForwardBatch, LogprobTensors, Sampled
from stage1.interfaces import LogitsProcessor
from stage1.logprobs import gather_logprobs
from stage2.inputs import StepBatch
from stage2.kernels.sampling import sample
from stage2.kernels.sampling_filters import filter_thresholds
from stage2.needs import changes_logits, has_filter, most_alternatives


class TritonSampler:
    """``Sampler`` with one token a request."""

    capturable = True  # a batch without ``states`` may be sampled inside a graph

    def __init__(self, processors: Sequence[LogitsProcessor] = ()) -> None:
        self._processors = tuple(processors)  # whoever runs the model calls their ``prepare``

    def sample(self, logits: torch.Tensor, batch: ForwardBatch) -> Sampled:
        """``logits`` [R, vocab] in the model's dtype, not changed → one token a row, on the device."""
        assert isinstance(batch, StepBatch)
        wanting = [state.params for state, samples in zip(batch.states, batch.samples, strict=True) if samples]
        k = most_alternatives(wanting, logits.shape[1])
        raw = logits
        if any(changes_logits(params) for params in wanting):
            logits = logits.float() if logits.dtype != torch.float32 else logits.clone()
            for processor in self._processors:
                logits = processor.apply(logits, batch)
        floor = None
        if any(has_filter(params, logits.shape[1]) for params in wanting):
            floor = filter_thresholds(logits, batch.temperature, batch.top_k, batch.top_p, batch.min_p)
        ids, bad = sample(logits, batch.temperature, batch.seeds, batch.draw_positions, floor)
        logprobs: LogprobTensors | None = None if k is None else gather_logprobs(raw.float(), ids, k)
        return Sampled(ids[:, None], batch.draws, bad, logprobs)
