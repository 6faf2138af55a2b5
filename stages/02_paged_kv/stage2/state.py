"""The request table: what the device remembers of each request, one row from its admission to its end.

Owns the memory, the meaning of its columns and the rows that are free. Does not know plans or steps.

    row = [ sampling parameters | block ids, in the order of the tokens | token ids: prompt and output ]
           12 columns             max_blocks columns                      max_model_len + 1 columns

Everything is a 32-bit integer (floats by their bits, seeds as two halves), so that any change is a pair (index, value)
and all changes of a step are one small copy. A token that was sampled is written into its row on the device, where the
next step reads it: the host need not have seen it. Behind a request's blocks stands ``NO_BLOCK``: whoever runs ahead
of the schedule, as a drafter does, sees where its memory ends.

vLLM: ``v1/worker/gpu_input_batch.py``, ``v1/worker/block_table.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from stage1.batch import RowState

Edit = tuple[np.ndarray, np.ndarray]  # indices into the flat table, and what they get; [n] int32 each

TEMPERATURE, TOP_P, MIN_P, TOP_K, SEED, NUM_PROMPT = 0, 1, 2, 3, 4, 6  # columns; the seed takes two
BLOCKS = 12
NO_BLOCK = -1


@dataclass(slots=True, eq=False)
class TableRow(RowState):
    """The host's view of a row."""

    row: int


class RequestTable:
    """``num_rows`` rows on ``device``.

    Raises:
        ValueError: the table has more entries than 32-bit indices can name.
    """

    def __init__(self, num_rows: int, max_blocks: int, max_model_len: int, device: torch.device) -> None:
        self.num_rows = num_rows
        self.tokens_at = BLOCKS + max_blocks  # column of the first token
        self.width = self.tokens_at + max_model_len + 1
        if num_rows * self.width >= 1 << 31:
            raise ValueError(
                f"{num_rows:,} requests of {max_model_len:,} tokens make a table of {num_rows * self.width:,} entries; "
                f"{(1 << 31) - 1:,} can be addressed: lower --max-num-seqs or --max-model-len"
            )
        self.memory = torch.zeros(num_rows, self.width, dtype=torch.int32, device=device)
        self.block_table = self.memory[:, BLOCKS : self.tokens_at]  # [rows, max_blocks]
        self.token_ids = self.memory[:, self.tokens_at :]  # [rows, max_model_len + 1]
        self._free = list(range(num_rows - 1, -1, -1))

    def take_row(self) -> int:
        """A free row; its content is that of whoever had it before."""
        return self._free.pop()

    def give_back(self, row: int) -> None:
        """``row`` is free."""
        self._free.append(row)

    def describe(self, row: TableRow) -> Edit:
        """The change that brings a new request's parameters into its row."""
        params = row.params
        floats = np.array([params.temperature, params.top_p, params.min_p], np.float32).view(np.int32)
        seed = np.array([row.seed], np.int64).view(np.int32)
        return _run(row.row * self.width, [*floats, params.top_k, *seed, row.num_prompt_tokens])

    def append_blocks(self, row: TableRow, block_ids: Sequence[int]) -> Edit:
        """The change that adds ``block_ids`` behind those that ``row`` has, on both sides."""
        first = row.row * self.width + BLOCKS + len(row.block_ids)
        row.block_ids.extend(block_ids)
        is_full = len(row.block_ids) == self.tokens_at - BLOCKS
        return _run(first, block_ids if is_full else [*block_ids, NO_BLOCK])

    def put_tokens(self, row: TableRow, start: int, token_ids: Sequence[int]) -> Edit:
        """The change that writes ``token_ids`` from position ``start`` on."""
        return _run(row.row * self.width + self.tokens_at + start, token_ids)

    def put_drafts(self, rows: np.ndarray, starts: np.ndarray, drafts: Sequence[Sequence[int]]) -> Edit:
        """The change that writes the drafts of many requests, [R] rows of the table, from ``starts`` [R] on."""
        counts = np.array([len(ids) for ids in drafts])
        # Where each row's drafts begin in the table, less where they begin among all of them.
        first = rows.astype(np.int64) * self.width + self.tokens_at + starts - (counts.cumsum() - counts)
        values = np.array([token for ids in drafts for token in ids], np.int32)
        return (first.repeat(counts) + np.arange(len(values))).astype(np.int32), values


def _run(first: int, values: Sequence[int]) -> Edit:
    return np.arange(first, first + len(values), dtype=np.int32), np.array(values, np.int32)
