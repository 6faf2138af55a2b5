"""From logits to tokens, in plain torch: the oracle of every faster sampler.

Owns the order of what happens to logits: raw log-probabilities, processors, temperature, min-p, top-k, top-p, one draw.
Does not know requests beyond their ``RowState``. A row's token depends only on its own logits, parameters, seed and
output position: rows can be permuted, mixed with any others, preempted and resumed, and the same tokens come out.

vLLM: ``v1/sample/sampler.py``, ``v1/sample/ops/topk_topp_sampler.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stage1.batch import ForwardBatch, LogprobTensors, RowState, Sampled
from stage1.interfaces import LogitsProcessor
from stage1.logprobs import alternatives, gather_logprobs
from stage1.params import SamplingParams
from stage1.philox import exponential_noise
from stage1.transfer import to_device

_OFF = 2.0  # a top_p that keeps everything, even where rounding lets a sum of probabilities reach 1 too early


class TorchSampler:
    """``Sampler`` with one token a request. Runs on the device of the logits and never waits for it."""

    def __init__(self, processors: Sequence[LogitsProcessor] = ()) -> None:
        self._processors = tuple(processors)  # whoever runs the model calls their ``prepare``

    def sample(self, logits: torch.Tensor, batch: ForwardBatch) -> Sampled:
        """``logits`` [R, vocab], row i for ``batch.states[i]``, may be changed → one token a row that samples."""
        logits = logits.float()
        device = logits.device
        k = _most_alternatives(batch, logits.shape[1])
        raw = logits.clone() if k is not None and self._processors else logits
        for processor in self._processors:
            logits = processor.apply(logits, batch)
        bad = ~logits.amax(dim=1).isfinite()  # [R]; a maximum is not-a-number as soon as one value is
        ids = logits.argmax(dim=1)  # [R]
        drawn = [i for i, state in enumerate(batch.states) if batch.samples[i] and not state.params.is_greedy]
        if drawn:
            rows = to_device(drawn, torch.int64, device)
            ids.index_copy_(0, rows, _draw(logits[rows], [batch.states[i] for i in drawn]))
        logprobs: LogprobTensors | None = None if k is None else gather_logprobs(raw, ids, k)
        return Sampled(ids[:, None], to_device([int(s) for s in batch.samples], torch.int64, device), bad, logprobs)


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Set to -inf what a row's filters leave out of ``logits`` [N, vocab]; the parameters are [N, 1].

    Each filter works on the distribution that the one before it left, renormalised, and is a *threshold on the value*:

    - min-p keeps tokens whose probability is at least ``min_p`` times the largest;
    - top-k keeps tokens at least as likely as the k-th (``top_k`` in 1..vocab; vocab = off);
    - top-p keeps a token if the tokens strictly more likely have less than ``top_p`` together (above 1 = off).

    So tokens with equal logits stay or go together, and the most likely ones always stay. A search for the
    threshold without a sort gives the same set.
    """
    floor = logits.amax(dim=1, keepdim=True) + min_p.log()  # [N, 1]; log 0 = -inf keeps all
    best = logits.sort(dim=1, descending=True).values  # [N, vocab]
    floor = torch.maximum(floor, best.gather(1, top_k - 1))
    probs = best.masked_fill(best < floor, -torch.inf).softmax(dim=1)
    before = probs.cumsum(dim=1).roll(1, dims=1)  # [N, vocab] probability of all better ones
    before[:, 0] = 0.0
    last = (before < top_p).sum(dim=1, keepdim=True) - 1  # [N, 1]
    floor = torch.maximum(floor, best.gather(1, last.clamp(min=0)))  # -1: not-a-numbers, or a tiny top_p
    return logits.masked_fill(logits < floor, -torch.inf)


def _draw(logits: torch.Tensor, states: Sequence[RowState]) -> torch.Tensor:
    """One token from softmax(logits / temperature) under each row's filters: [N, vocab] → [N]."""
    device, vocab_size = logits.device, logits.shape[1]
    temperature = to_device([s.params.effective_temperature for s in states], torch.float32, device)
    logits = logits / temperature[:, None]
    filtered = [i for i, state in enumerate(states) if _has_filter(state.params, vocab_size)]
    if filtered:
        rows = to_device(filtered, torch.int64, device)
        params = [states[i].params for i in filtered]
        top_k = to_device([p.top_k if 0 < p.top_k < vocab_size else vocab_size for p in params], torch.int64, device)
        top_p = to_device([p.top_p if p.top_p < 1 else _OFF for p in params], torch.float32, device)
        min_p = to_device([p.min_p for p in params], torch.float32, device)
        kept = filter_logits(logits[rows], top_k[:, None], top_p[:, None], min_p[:, None])
        logits.index_copy_(0, rows, kept)
    seeds = to_device([s.seed for s in states], torch.int64, device)
    positions = to_device([s.num_output_tokens for s in states], torch.int64, device)
    return (logits - exponential_noise(seeds, positions, vocab_size).log_()).argmax(dim=1)


def _has_filter(params: SamplingParams, vocab_size: int) -> bool:
    return params.top_p < 1 or params.min_p > 0 or 0 < params.top_k < vocab_size


def _most_alternatives(batch: ForwardBatch, vocab_size: int) -> int | None:
    """The largest number of alternatives that a sampling row asks for; ``None`` if no row wants log-probabilities."""
    asked = (
        alternatives(state.params.logprobs, vocab_size)
        for state, samples in zip(batch.states, batch.samples, strict=True)
        if samples
    )
    return max((k for k in asked if k is not None), default=None)
