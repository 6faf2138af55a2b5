"""Log-probabilities of sampled tokens and of prompts.

They are *raw*: the model's own distribution, before temperature, penalties, masks and filters. Owns how they are
computed in bounded memory. Does not know requests. Values may be -inf; the front end decides how to write that in JSON.

vLLM: ``v1/sample/sampler.py`` (``gather_logprobs``), ``v1/worker/gpu_model_runner.py`` (``_get_prompt_logprobs_dict``).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from stage1.batch import LogprobTensors
from stage1.records import Logprobs

PROMPT_SLICE_ROWS = 64  # 64 rows of 151,936 logits are 37 MiB in float32, and about four such tensors live at once


def alternatives(asked: int | None, vocab_size: int) -> int | None:
    """How many alternatives ``logprobs`` or ``prompt_logprobs`` asks for: -1 stands for the whole vocabulary."""
    return vocab_size if asked == -1 else asked


def gather_logprobs(raw_logits: torch.Tensor, chosen_ids: torch.Tensor, k: int) -> LogprobTensors:
    """The log-probabilities of ``chosen_ids`` [L] and of the ``k`` most likely tokens under ``raw_logits`` [L, vocab].

    The rank of a token is 1 + the number of tokens strictly more likely. Chosen and best values are read from the same
    tensor, so a chosen token that is also the best has the very same float in both places.
    """
    raw_logits = raw_logits.float()
    chosen = chosen_ids[:, None]  # [L, 1]
    ranks = 1 + (raw_logits > raw_logits.gather(1, chosen)).sum(dim=1)  # [L]
    best = raw_logits.topk(min(k, raw_logits.shape[1]), dim=1).indices  # [L, k]
    ids = torch.cat((chosen, best), dim=1)  # [L, 1 + k]
    return LogprobTensors(ids, raw_logits.log_softmax(dim=1).gather(1, ids), ranks)


def prompt_logprobs(
    hidden: torch.Tensor,
    next_ids: torch.Tensor,
    k: int,
    to_logits: Callable[[torch.Tensor], torch.Tensor],
    slice_rows: int = PROMPT_SLICE_ROWS,
) -> Logprobs:
    """How likely ``next_ids`` [n] are after ``hidden`` [n, hidden], with ``k`` alternatives each, on the host.

    ``to_logits`` maps [rows, hidden] to [rows, vocab] and is called on ``slice_rows`` rows at a time: the peak is about
    ``4 * slice_rows * vocab * 4`` bytes, whatever the prompt's length. Waits for the device once a slice.
    """
    out = Logprobs([], [], [])
    for start in range(0, len(next_ids), slice_rows):
        part = slice(start, start + slice_rows)
        tensors = gather_logprobs(to_logits(hidden[part]), next_ids[part], k)
        out.ids += tensors.ids.tolist()
        out.values += tensors.values.tolist()
        out.ranks += tensors.ranks.tolist()
    return out
