"""Masks, biases and penalties: the rules by hand, requests that come and go, and rows that ask for nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from stage1.batch import ForwardBatch, RowState
from stage1.interfaces import LogitsProcessor
from stage1.logits_processors import AllowedTokens, BadWords, LogitBias, MinTokens, default_processors
from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput
from stage1.sampler import TorchSampler

INF = math.inf
CPU = torch.device("cpu")
VOCAB = 6


@dataclass
class Requests:
    """What a runner does with its states, in a few lines: requests come, grow, leave and return."""

    processors: tuple[LogitsProcessor, ...]
    states: dict[str, RowState] = field(default_factory=dict)
    pending: list[NewRequestData] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)

    def add(self, req_id: str, prompt: list[int], output: list[int] | None = None, **params: Any) -> None:
        params.setdefault("max_tokens", 100)
        new = NewRequestData(req_id, prompt, output or [], SamplingParams(**params), [0], 0)
        self.pending.append(new)
        self.states[req_id] = RowState(req_id, new.params, 0, len(prompt), [*prompt, *new.output_ids], [0], 0)

    def leave(self, req_id: str, preempted: bool = False) -> RowState:
        (self.preempted if preempted else self.finished).append(req_id)
        return self.states.pop(req_id)

    def prepare(self, order: list[str] | None = None, partial: tuple[str, ...] = ()) -> ForwardBatch:
        req_ids = list(self.states) if order is None else order
        plan = SchedulerOutput(0, self.pending, CachedRequests(), dict.fromkeys(req_ids, 1))
        plan.finished, plan.preempted = self.finished, self.preempted
        self.pending, self.finished, self.preempted = [], [], []
        rows = torch.arange(len(req_ids))
        batch = ForwardBatch(rows, rows, rows, rows, rows, rows[:, None], rows, rows, 1, 1)
        batch.states = [self.states[r] for r in req_ids]
        batch.samples = [r not in partial for r in req_ids]
        for processor in self.processors:
            processor.prepare(plan, batch)
        return batch

    def apply(self, logits: torch.Tensor, *prepare: Any) -> torch.Tensor:
        batch = self.prepare(*prepare)
        logits = logits.clone()
        for processor in self.processors:
            logits = processor.apply(logits, batch)
        return logits

    def row(self, logits: list[float]) -> list[float]:
        """Apply to the only request."""
        return self.apply(torch.tensor([logits]))[0].tolist()


def only(processor: LogitsProcessor) -> Requests:
    return Requests((processor,))


# --- masks and biases ---------------------------------------------------------------------------------


def test_allowed_tokens() -> None:
    requests = only(AllowedTokens(VOCAB, CPU))
    requests.add("a", [0], allowed_token_ids=[1, 4, 4])
    assert requests.row([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == [-INF, 2.0, -INF, -INF, 5.0, -INF]


def test_logit_bias() -> None:
    requests = only(LogitBias(VOCAB, CPU))
    requests.add("a", [0], logit_bias={0: 100, 5: -1.5})
    assert requests.row([1.0, 2.0, -INF, 4.0, 5.0, 6.0]) == [101.0, 2.0, -INF, 4.0, 5.0, 4.5]


def test_bad_words_follow_the_output() -> None:
    requests = only(BadWords(CPU))
    requests.add("a", [3, 4], bad_words_ids=[[5], [3, 4, 0], [4, 1], [2, 2]])
    flat = [0.0] * VOCAB

    def forbidden() -> set[int]:
        return {i for i, x in enumerate(requests.row(flat)) if x == -INF}

    assert forbidden() == {5}  # the prompt ends with 3 4, which counts for nothing
    requests.states["a"].token_ids.append(4)
    assert forbidden() == {5, 1}  # 3 4 is no match either: its 3 would be the prompt's
    requests.states["a"].token_ids += [3, 4]
    assert forbidden() == {5, 0, 1}
    requests.states["a"].token_ids += [2]
    assert forbidden() == {5, 2}


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_min_tokens(ignore_eos: bool) -> None:
    requests = only(MinTokens(CPU))
    requests.add("a", [1, 1, 1], min_tokens=2, eos_token_ids=[2, 0], stop_token_ids=[5], ignore_eos=ignore_eos)
    logits = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    masked = [-INF, 2.0, -INF, 4.0, 5.0, -INF]
    assert requests.row(logits) == masked
    requests.states["a"].token_ids.append(1)
    assert requests.row(logits) == masked
    requests.states["a"].token_ids.append(1)
    assert requests.row(logits) == logits


def generate(requests: Requests, logits: list[float], steps: int) -> list[int]:
    """Greedy tokens of the only request while its logits stay what they are."""
    sampler = TorchSampler(requests.processors)
    (state,) = requests.states.values()
    for _ in range(steps):
        batch = requests.prepare()
        state.token_ids.append(int(sampler.sample(torch.tensor([logits]), batch).ids))
    return state.token_ids[state.num_prompt_tokens :]


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_min_tokens_win_over_bias_towards_eos(min_tokens: int) -> None:
    requests = Requests(default_processors(VOCAB, CPU))
    bias = {2: 100, 0: 100}
    requests.add("a", [1], temperature=0, min_tokens=min_tokens, logit_bias=bias, eos_token_ids=[2, 0])
    assert generate(requests, [0.0, 1.0, 0.5, 2.0, 1.5, 0.0], min_tokens + 1) == [3] * min_tokens + [2]


def test_a_forbidden_token_stays_forbidden_under_every_rule() -> None:
    requests = Requests(default_processors(VOCAB, CPU))
    requests.add(
        "a",
        [0, 1],
        [2, 3],
        allowed_token_ids=[0, 1, 2, 3],
        bad_words_ids=[[1], [3, 2]],
        min_tokens=3,
        eos_token_ids=[0],
        logit_bias=dict.fromkeys(range(VOCAB), 100),
        repetition_penalty=0.5,
        frequency_penalty=-2,
        presence_penalty=-2,
    )
    row = requests.row([-1.0] * VOCAB)
    assert [i for i, x in enumerate(row) if x > -INF] == [3]
    assert not any(math.isnan(x) for x in row)


def test_nothing_left_is_reported_by_the_sampler() -> None:
    requests = Requests(default_processors(VOCAB, CPU))
    requests.add("a", [0], allowed_token_ids=[4], bad_words_ids=[[4]])
    requests.add("b", [0], temperature=0)
    batch = requests.prepare()
    out = TorchSampler(requests.processors).sample(torch.eye(2, VOCAB), batch)
    assert out.bad.tolist() == [True, False]
    assert int(out.ids[1]) == 1


@pytest.mark.parametrize("token", range(VOCAB))
def test_masks_do_not_hide_a_nan(token: int) -> None:
    requests = Requests(default_processors(VOCAB, CPU))
    requests.add("a", [0], allowed_token_ids=[1, 2], bad_words_ids=[[3]], min_tokens=1, eos_token_ids=[4])
    logits = torch.zeros(1, VOCAB)
    logits[0, token] = math.nan
    assert TorchSampler(requests.processors).sample(logits, requests.prepare()).bad.tolist() == [True]


# --- requests that come and go ---------------------------------------------------------------------------


def test_an_id_used_again_starts_clean() -> None:
    """Even when the end of its first owner was never seen: a plan with nothing to compute may not reach a processor."""
    for finish in (True, False):
        requests = Requests(default_processors(VOCAB, CPU))
        requests.add("a", [0, 1], [2], repetition_penalty=2, logit_bias={3: 5}, allowed_token_ids=[0, 1, 2, 3])
        requests.row([2.0] * VOCAB)
        requests.leave("a")
        if not finish:
            requests.finished.clear()
        requests.add("a", [5], repetition_penalty=2, logit_bias={4: 5}, allowed_token_ids=[3, 4, 5])
        assert requests.row([2.0] * VOCAB) == [-INF, -INF, -INF, 2.0, 7.0, 1.0]


@pytest.mark.parametrize("preempted", [False, True])
def test_nothing_is_remembered_of_requests_that_left(preempted: bool) -> None:
    def remembered() -> bool:
        return any("a" in kept for p in requests.processors for kept in vars(p).values() if isinstance(kept, dict))

    requests = Requests(default_processors(VOCAB, CPU))
    requests.add("a", [0, 1], [2], repetition_penalty=2, logit_bias={3: 5}, allowed_token_ids=[0, 1, 2, 3])
    requests.row([2.0] * VOCAB)
    assert remembered()
    requests.leave("a", preempted)
    requests.prepare()
    assert not remembered()


def test_unknown_requests_may_finish() -> None:
    requests = Requests(default_processors(VOCAB, CPU))
    requests.finished, requests.preempted = ["never seen"], ["nor this"]
    requests.add("a", [0], repetition_penalty=2)
    assert requests.row([2.0] * VOCAB) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0]


# --- rows that ask for nothing --------------------------------------------------------------------------


def test_other_rows_are_bit_identical() -> None:
    requests = Requests(default_processors(VOCAB, CPU))
    requests.add("plain", [0, 1], [2, 3])
    requests.add(
        "all",
        [0, 1],
        [2, 3],
        allowed_token_ids=[1, 2, 3],
        bad_words_ids=[[1]],
        min_tokens=5,
        eos_token_ids=[2],
        logit_bias={3: 1.0},
        repetition_penalty=1.3,
    )
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(0))
    logits[0, 0] = -0.0
    for order in (["plain", "all"], ["all", "plain"]):
        out = requests.apply(logits, order)
        row = order.index("plain")
        assert torch.equal(out[row].view(torch.int32), logits[row].view(torch.int32))
        assert not torch.equal(out[1 - row], logits[1 - row])


def test_a_batch_without_wishes_is_untouched() -> None:
    requests = Requests(default_processors(VOCAB, CPU))
    requests.add("a", [0, 1], [2])
    requests.add("b", [0, 1], [2], repetition_penalty=2, min_tokens=9, eos_token_ids=[1], logit_bias={1: 1.0})
    batch = requests.prepare(partial=("b",))  # b's prompt is not finished: no token is drawn from its row
    logits = torch.zeros(2, VOCAB)
    version = logits._version
    for processor in requests.processors:
        assert processor.apply(logits, batch) is logits
    assert logits._version == version
