"""The rules that change logits before a token is drawn: masks, biases and penalties.

Owns what must be remembered of a request to apply them, kept under its ``req_id`` until it finishes or is preempted; a
resumed request is rebuilt from its tokens, so preemption changes nothing. Does not know text: bad words arrive as token
ids. A processor reads and writes the rows of requests that ask for it and no others.

Masks and biases are *added* (-inf forbids), so their order does not matter, a forbidden token stays forbidden under any
bias, and a not-a-number stays visible to the sampler. Penalties multiply, and come last.

vLLM: ``v1/sample/logits_processor/builtin.py``, ``v1/sample/ops/penalties.py``, ``v1/sample/ops/bad_words.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain

import torch

from stage1.batch import ForwardBatch, RowState
from stage1.interfaces import LogitsProcessor
from stage1.params import SamplingParams
from stage1.records import SchedulerOutput
from stage1.transfer import to_device


def default_processors(vocab_size: int, device: torch.device) -> tuple[LogitsProcessor, ...]:
    """Every processor of this stage, in vLLM's order."""
    return (
        AllowedTokens(vocab_size, device),
        BadWords(device),
        MinTokens(device),
        LogitBias(vocab_size, device),
        Penalties(vocab_size, device),
    )


def _departed(plan: SchedulerOutput) -> chain[str]:
    """Requests whose memory is void: gone, preempted, or so new that an equal id must be an earlier request's."""
    return chain(plan.finished, plan.preempted, (new.req_id for new in plan.new))


def _sampling_rows(batch: ForwardBatch) -> list[tuple[int, RowState]]:
    """Rows from which a token will be drawn, with their numbers."""
    return [(i, state) for i, state in enumerate(batch.states) if batch.samples[i]]


# --- a fixed row of the vocabulary for each request -------------------------------------------------


class _AddedRows(ABC):
    """Adds a row [vocab] to the logits of each request that has one; it is made once a request."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._added: dict[str, torch.Tensor] = {}  # [vocab] float32 each
        self._now: list[tuple[int, str]] = []  # (row of the batch, req_id)

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Make rows for requests that came, drop those of requests that left."""
        for req_id in _departed(plan):
            self._added.pop(req_id, None)
        self._now = [(i, state.req_id) for i, state in _sampling_rows(batch) if self._wanted(state.params)]
        for i, req_id in self._now:
            if req_id not in self._added:
                self._added[req_id] = self._make(batch.states[i].params)

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Add, in place."""
        if not self._now:
            return logits
        rows = to_device([i for i, _ in self._now], torch.int64, self._device)
        return logits.index_add_(0, rows, torch.stack([self._added[req_id] for _, req_id in self._now]))

    @abstractmethod
    def _wanted(self, params: SamplingParams) -> bool:
        """Whether a request has such a row."""

    @abstractmethod
    def _make(self, params: SamplingParams) -> torch.Tensor:
        """The row [vocab] float32 of a request that has one."""


class AllowedTokens(_AddedRows):
    """``allowed_token_ids``: nothing else can be drawn."""

    def _wanted(self, params: SamplingParams) -> bool:
        return params.allowed_token_ids is not None

    def _make(self, params: SamplingParams) -> torch.Tensor:
        row = torch.full((self._vocab_size,), -torch.inf, device=self._device)
        return row.index_fill_(0, to_device(params.allowed_token_ids or [], torch.int64, self._device), 0.0)


class LogitBias(_AddedRows):
    """``logit_bias``: a number added to the logits of some tokens."""

    def _wanted(self, params: SamplingParams) -> bool:
        return bool(params.logit_bias)

    def _make(self, params: SamplingParams) -> torch.Tensor:
        biases = params.logit_bias or {}
        ids = to_device(list(biases), torch.int64, self._device)
        values = to_device(list(biases.values()), torch.float32, self._device)
        return torch.zeros(self._vocab_size, device=self._device).index_copy_(0, ids, values)


# --- a few tokens forbidden in this step --------------------------------------------------------------


class _ForbiddenTokens(ABC):
    """Forbids a few tokens a row, found anew each step from the row's state: nothing to remember, nothing to drop."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pairs: list[tuple[int, int]] = []  # (row of the batch, token id)

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Find what is forbidden in this step."""
        self._pairs = [(i, token) for i, state in _sampling_rows(batch) for token in self._forbidden(state)]

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Mask, in place; a token forbidden twice is no harm, both writes are equal."""
        if not self._pairs:
            return logits
        rows = to_device([row for row, _ in self._pairs], torch.int64, self._device)
        tokens = to_device([token for _, token in self._pairs], torch.int64, self._device)
        logits[rows, tokens] += -torch.inf
        return logits

    @abstractmethod
    def _forbidden(self, state: RowState) -> Sequence[int]:
        """Token ids that must not follow now."""


class BadWords(_ForbiddenTokens):
    """``bad_words``: the token that would complete one. Only the output counts: a word begun by the prompt may end."""

    def _forbidden(self, state: RowState) -> Sequence[int]:
        return [word[-1] for word in state.params.bad_words_ids if _output_ends_with(state, word[:-1])]


class MinTokens(_ForbiddenTokens):
    """``min_tokens``: no end-of-sequence and no stop token before so many tokens of output.

    As in vLLM, ``ignore_eos`` does not lift it: that one says what to do with an EOS, this one that none comes.
    """

    def _forbidden(self, state: RowState) -> Sequence[int]:
        if state.num_output_tokens >= state.params.min_tokens:
            return ()
        return (*state.params.eos_token_ids, *state.params.stop_token_ids)


def _output_ends_with(state: RowState, tokens: Sequence[int]) -> bool:
    n = len(tokens)
    return n <= state.num_output_tokens and state.token_ids[len(state.token_ids) - n :] == tokens


# --- penalties ----------------------------------------------------------------------------------------


class Penalties:
    """``repetition_penalty`` (prompt and output), ``presence_penalty`` and ``frequency_penalty`` (output only).

    With s = "occurs in prompt or output" and c = "times it occurs in the output":

        logit ← logit / repetition if logit > 0 else logit * repetition      where s
        logit ← logit - frequency * c - presence * (c > 0)

    Tokens are counted in a table on the device, a slot a request; a step adds only those that are new since the last.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._device = device
        self._seen = torch.zeros(0, vocab_size, dtype=torch.bool, device=device)  # [slots, vocab]
        self._counts = torch.zeros(0, vocab_size, dtype=torch.int32, device=device)  # [slots, vocab] in the output
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._followed: dict[str, int] = {}  # tokens of the request that the table holds
        self._now: list[tuple[int, RowState]] = []

    def prepare(self, plan: SchedulerOutput, batch: ForwardBatch) -> None:
        """Count the tokens that came since the last step."""
        for req_id in _departed(plan):
            if req_id in self._slots:
                self._free.append(self._slots.pop(req_id))
                del self._followed[req_id]
        self._now = [(i, state) for i, state in _sampling_rows(batch) if _is_penalised(state.params)]
        if self._now:
            self._claim([state.req_id for _, state in self._now if state.req_id not in self._slots])
            self._follow([state for _, state in self._now])

    def apply(self, logits: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """Penalise, in place."""
        if not self._now:
            return logits
        rows = to_device([i for i, _ in self._now], torch.int64, self._device)  # [P]
        slots = to_device([self._slots[state.req_id] for _, state in self._now], torch.int64, self._device)  # [P]
        repetition = self._column([state.params.repetition_penalty for _, state in self._now])  # [P, 1]
        frequency = self._column([state.params.frequency_penalty for _, state in self._now])
        presence = self._column([state.params.presence_penalty for _, state in self._now])
        x, counts = logits[rows], self._counts[slots]  # [P, vocab]
        x = torch.where(self._seen[slots], torch.where(x > 0, x / repetition, x * repetition), x)
        x = x - frequency * counts - presence * (counts > 0)
        return logits.index_copy_(0, rows, x)

    def _claim(self, req_ids: Sequence[str]) -> None:
        """Give each of ``req_ids`` an empty slot; the table doubles when it is full."""
        if not req_ids:
            return
        missing = len(req_ids) - len(self._free)
        if missing > 0:
            old = self._seen.shape[0]
            more = max(missing, old)
            self._seen = torch.cat((self._seen, self._seen.new_zeros(more, self._seen.shape[1])))
            self._counts = torch.cat((self._counts, self._counts.new_zeros(more, self._counts.shape[1])))
            self._free += range(old, old + more)
        claimed = [self._free.pop() for _ in req_ids]
        self._slots.update(zip(req_ids, claimed, strict=True))
        self._followed.update(dict.fromkeys(req_ids, 0))
        slots = to_device(claimed, torch.int64, self._device)
        self._seen.index_fill_(0, slots, False)
        self._counts.index_fill_(0, slots, 0)

    def _follow(self, states: Sequence[RowState]) -> None:
        """Enter the tokens [followed, length) of each request: all as seen, those of the output as counted."""
        slots: list[int] = []
        tokens: list[int] = []
        is_output: list[int] = []
        for state in states:
            start, end = self._followed[state.req_id], len(state.token_ids)
            slots += [self._slots[state.req_id]] * (end - start)
            tokens += state.token_ids[start:end]
            is_output += [int(i >= state.num_prompt_tokens) for i in range(start, end)]
            self._followed[state.req_id] = end
        if not tokens:
            return
        at = (to_device(slots, torch.int64, self._device), to_device(tokens, torch.int64, self._device))
        self._seen.index_put_(at, torch.ones((), dtype=torch.bool, device=self._device))
        self._counts.index_put_(at, to_device(is_output, torch.int32, self._device), accumulate=True)

    def _column(self, values: Sequence[float]) -> torch.Tensor:
        return to_device(values, torch.float32, self._device)[:, None]


def _is_penalised(params: SamplingParams) -> bool:
    return params.repetition_penalty != 1 or params.frequency_penalty != 0 or params.presence_penalty != 0
