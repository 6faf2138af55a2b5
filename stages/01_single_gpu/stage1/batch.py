"""The flattened batch of one step: what the runner hands to model, attention and sampler.

All tokens of all scheduled requests lie behind each other in one dimension, with no padding and no
prefill/decode flag. Example with block_size 4 — A has 5 tokens of a prompt to compute, B decodes its 7th token:

    input_ids      a0 a1 a2 a3 a4 | b6        [T = 6]
    positions       0  1  2  3  4 |  6        [T]
    query_start     0                5   6    [R + 1], request r owns the half-open interval [q[r], q[r+1])
    seq_lens        5                7        [R], keys visible to the last query
    block_table    [[8, 3], [5, 0]]           [R, B]
    slot_mapping   32 33 34 35 12 |  2        [T], block_id * block_size + position % block_size
    logits_rows     4                5        [L], here one a request: its last token

vLLM: ``v1/worker/gpu_model_runner.py`` (``_prepare_inputs``), ``v1/attention/backends/utils.py``
(``CommonAttentionMetadata``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stage1.params import SamplingParams
from stage1.records import Logprobs


@dataclass(slots=True, eq=False)
class RowState:
    """The runner's own memory of one request. Written by the runner alone."""

    req_id: str
    params: SamplingParams
    seed: int  # signed 64-bit; every request has one
    num_prompt_tokens: int
    token_ids: list[int]  # prompt and sampled output
    block_ids: list[int]
    num_computed: int

    @property
    def num_output_tokens(self) -> int:
        """Output tokens sampled so far: the position of the next draw."""
        return len(self.token_ids) - self.num_prompt_tokens


@dataclass(slots=True, eq=False)
class ForwardBatch:
    """One step's inputs on the device (int64 unless said) and, in ``states``, the host's view of its rows."""

    rows: torch.Tensor  # [R] rows of the runner's request table
    input_ids: torch.Tensor  # [T]
    positions: torch.Tensor  # [T]
    query_start: torch.Tensor  # [R + 1]
    seq_lens: torch.Tensor  # [R]
    block_table: torch.Tensor  # [R, B]
    slot_mapping: torch.Tensor  # [T]; where ``has_gaps``, -1 = keys and values are not stored
    logits_rows: torch.Tensor  # [L] indices into T
    max_query_len: int
    max_seq_len: int
    states: Sequence[RowState] = ()  # [R], in batch order; a captured graph never reads it
    samples: Sequence[bool] = ()  # [R], false while a prompt is only partly computed
    attn: Any = field(default=None)  # what the attention backend planned
    has_gaps: bool = False  # some tokens may have no slot

    @property
    def num_reqs(self) -> int:
        """R."""
        return self.rows.shape[0]

    @property
    def num_tokens(self) -> int:
        """T."""
        return self.input_ids.shape[0]


@dataclass(slots=True, eq=False)
class LogprobTensors:
    """Log-probabilities still on the device; ``k`` is the largest number asked for in the batch."""

    ids: torch.Tensor  # [L, 1 + k] the chosen token, then the k best
    values: torch.Tensor  # [L, 1 + k] float32
    ranks: torch.Tensor  # [L]

    def to_rows(self, wanted: Sequence[int | None]) -> list[Logprobs | None]:
        """One record a row with its own ``wanted`` number of alternatives; ``None`` stays ``None``."""
        ids, values, ranks = self.ids.tolist(), self.values.tolist(), self.ranks.tolist()
        return [
            None if k is None else Logprobs([ids[r][: 1 + k]], [values[r][: 1 + k]], [ranks[r]])
            for r, k in enumerate(wanted)
        ]


@dataclass(slots=True, eq=False)
class Sampled:
    """What a sampler returns, on the device: one or more tokens a request."""

    ids: torch.Tensor  # [R, 1 + k] int64
    counts: torch.Tensor  # [R] int64, how many of them count; 0 for an unfinished prompt
    bad: torch.Tensor  # [R] bool: no token can be chosen (not-a-number, or nothing is allowed)
    logprobs: LogprobTensors | None = None
