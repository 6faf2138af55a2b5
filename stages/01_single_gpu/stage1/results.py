"""Log-probabilities of a step, from the device's tensors to the record that the scheduler reads.

Owns who gets how many alternatives. Does not know how a token was drawn, nor when a step is over.

vLLM: ``v1/worker/gpu_model_runner.py`` (``_bookkeeping_sync``, ``_get_prompt_logprobs_dict``).
"""

from __future__ import annotations

import torch

from stage1.batch import ForwardBatch, Sampled
from stage1.logprobs import alternatives, prompt_logprobs
from stage1.model.transformer import Transformer
from stage1.records import ModelRunnerOutput, PromptLogprobs
from stage1.transfer import to_device


def add_logprobs(out: ModelRunnerOutput, batch: ForwardBatch, sampled: Sampled | None, vocab_size: int) -> None:
    """Log-probabilities of the drawn tokens, for those who asked."""
    if sampled is None or sampled.logprobs is None:
        return
    wanted = [
        alternatives(state.params.logprobs, vocab_size) if samples else None
        for state, samples in zip(batch.states, batch.samples, strict=True)
    ]
    rows = sampled.logprobs.to_rows(wanted)
    out.logprobs = {req_id: row for req_id, row in zip(out.req_ids, rows, strict=True) if row is not None}


def prompt_rows(batch: ForwardBatch, hidden: torch.Tensor, model: Transformer) -> dict[str, PromptLogprobs]:
    """How likely each prompt token of this step was, given those before it; waits for the device if anyone asks."""
    asking = [(i, s) for i, s in enumerate(batch.states) if s.params.prompt_logprobs is not None]
    if not asking:
        return {}
    found = {}
    starts = batch.query_start.tolist()
    for i, state in asking:
        first = state.num_computed + 1  # a token's row of logits is the one before it
        last = min(first + starts[i + 1] - starts[i], state.num_prompt_tokens)
        if first >= last:
            continue
        next_ids = to_device(state.token_ids[first:last], torch.int64, hidden.device)
        count = alternatives(state.params.prompt_logprobs, model.shape.vocab_size) or 0
        rows = prompt_logprobs(hidden[starts[i] : starts[i] + last - first], next_ids, count, model.logits)
        found[state.req_id] = PromptLogprobs(first, rows)
    return found
