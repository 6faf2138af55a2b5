"""Penalties: the rule by hand, and against a count from scratch while requests come, grow, leave and return."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import pytest
import torch

from stage1.batch import ForwardBatch, RowState
from stage1.logits_processors import Penalties
from stage1.params import SamplingParams
from stage1.records import CachedRequests, NewRequestData, SchedulerOutput

CPU = torch.device("cpu")
LOGITS = [2.0, -2.0, 1.0, 0.0, 0.0, 0.0]


def request(req_id: str, prompt: list[int], output: Sequence[int] = (), **params: Any) -> RowState:
    return RowState(req_id, SamplingParams(max_tokens=1000, **params), 0, len(prompt), [*prompt, *output], [0], 0)


def split(state: RowState) -> tuple[list[int], list[int]]:
    return state.token_ids[: state.num_prompt_tokens], state.token_ids[state.num_prompt_tokens :]


def step(
    penalties: Penalties,
    states: list[RowState],
    logits: Sequence[Sequence[float]],
    new: Collection[str] = (),
    preempted: Sequence[str] = (),
    finished: Sequence[str] = (),
    partial: Collection[str] = (),
) -> list[list[float]]:
    """One step of ``states``, of which ``new`` are so and ``partial`` draw no token yet."""
    came = [NewRequestData(s.req_id, *split(s), s.params, [0], 0) for s in states if s.req_id in new]
    plan = SchedulerOutput(0, came, CachedRequests(), {s.req_id: 1 for s in states})
    plan.preempted, plan.finished = list(preempted), list(finished)
    rows = torch.arange(len(states))
    batch = ForwardBatch(rows, rows, rows, rows, rows, rows[:, None], rows, rows, 1, 1, states)
    batch.samples = [s.req_id not in partial for s in states]
    penalties.prepare(plan, batch)
    return penalties.apply(torch.tensor(logits, dtype=torch.float32), batch).tolist()


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"repetition_penalty": 2}, [1.0, -4.0, 0.5, 0.0, 0.0, 0.0]),
        (
            {"repetition_penalty": 2, "frequency_penalty": 0.1, "presence_penalty": 0.5},
            [1.0, -4.0, 0.5 - 0.7, 0.0, 0.0, 0.0],
        ),
        ({"frequency_penalty": 0.1, "presence_penalty": 0.5}, [2.0, -2.0, 1.0 - 0.7, 0.0, 0.0, 0.0]),
        ({"presence_penalty": -2}, [2.0, -2.0, 3.0, 0.0, 0.0, 0.0]),
    ],
)
def test_rule_by_hand(params: dict[str, float], expected: list[float]) -> None:
    state = request("a", [0, 1], [2, 2], **params)
    assert step(Penalties(6, CPU), [state], [LOGITS], new="a")[0] == pytest.approx(expected)


def test_penalties_belong_to_their_row_in_any_order() -> None:
    states = {
        "plain": request("plain", [0, 1], [2, 2]),
        "rep": request("rep", [0, 1], [2, 2], repetition_penalty=2),
        "freq": request("freq", [3], [2], frequency_penalty=1),
    }
    expected = {"plain": LOGITS, "rep": [1.0, -4.0, 0.5, 0.0, 0.0, 0.0], "freq": [2.0, -2.0, 0.0, 0.0, 0.0, 0.0]}
    penalties, new = Penalties(6, CPU), list(states)
    for order in (["plain", "rep", "freq"], ["freq", "plain", "rep"], ["rep", "freq", "plain"]):
        assert step(penalties, [states[r] for r in order], [LOGITS] * 3, new) == [expected[r] for r in order]
        new = []


def test_preemption_changes_nothing() -> None:
    params: dict[str, Any] = {"repetition_penalty": 1.5, "frequency_penalty": 0.5, "presence_penalty": 0.25}
    rows = []
    for preempted in (False, True):
        penalties, state = Penalties(6, CPU), request("a", [0, 1], **params)
        step(penalties, [state], [LOGITS], new="a")
        state.token_ids += [2]
        step(penalties, [state], [LOGITS])
        state.token_ids += [2]
        if preempted:
            step(penalties, [], torch.zeros(0, 6).tolist(), preempted="a")
        rows += step(penalties, [state], [LOGITS], new="a" if preempted else "")
    assert rows[0] == rows[1]


def test_memory_is_used_again() -> None:
    penalties = Penalties(6, CPU)

    def size() -> int:
        return sum(kept.numel() for kept in vars(penalties).values() if isinstance(kept, torch.Tensor))

    sizes = set()
    for i in range(20):
        state = request(str(i), [i % 6], repetition_penalty=2)
        expected = [1.0 if token == i % 6 else 2.0 for token in range(6)]
        assert step(penalties, [state], [[2.0] * 6], new=[str(i)], finished=[str(i - 1)]) == [expected]
        sizes.add(size())
    assert len(sizes) == 1


def plain(logits: list[float], state: RowState) -> list[float]:
    """The rule, counting from scratch."""
    out, params = list(logits), state.params
    for token in set(state.token_ids):
        factor = 1 / params.repetition_penalty if out[token] > 0 else params.repetition_penalty
        out[token] *= factor
    for token, count in Counter(split(state)[1]).items():
        out[token] -= params.frequency_penalty * count + params.presence_penalty
    return out


def test_requests_come_grow_leave_and_return() -> None:
    """A long random life of a batch; ids are used again, and some requests have no penalty."""
    rng = random.Random(0)
    penalties = Penalties(20, CPU)
    running: dict[str, RowState] = {}
    away: list[RowState] = []
    for number in range(200):
        preempted = [r for r in running if rng.random() < 0.15]
        finished = [r for r in running if r not in preempted and rng.random() < 0.1]
        away += [running.pop(r) for r in preempted]
        for r in finished:
            del running[r]
        new = [away.pop(0)] if away and rng.random() < 0.5 else []
        taken = {s.req_id for s in (*running.values(), *away, *new)}
        if f"r{number % 9}" not in taken and len(running) < 6:
            params: dict[str, Any] = {
                "repetition_penalty": rng.choice([1, 1.5]),
                "frequency_penalty": rng.choice([0, 0.5]),
                "presence_penalty": rng.choice([0, -0.5]),
            }
            new.append(request(f"r{number % 9}", rng.choices(range(20), k=rng.randint(1, 9)), **params))
        running |= {s.req_id: s for s in new}
        states = rng.sample(list(running.values()), len(running))
        partial = {s.req_id for s in states if rng.random() < 0.2}
        logits = [[rng.uniform(-3, 3) for _ in range(20)] for _ in states]
        if not states:
            continue
        out = step(penalties, states, logits, [s.req_id for s in new], preempted, finished, partial)
        for state, before, after in zip(states, logits, out, strict=True):
            untouched = state.req_id in partial
            assert after == pytest.approx(before if untouched else plain(before, state), abs=1e-5)
            if not untouched:
                state.token_ids += rng.choices(range(20), k=rng.choice([1, 1, 3]))  # several, as with speculation
